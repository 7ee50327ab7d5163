"""Finds the newest copy of a run in a cluster, wherever its last driver ran, and brings it here."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from actors.node_code import on_node
from actors.ray_words import said
from sweeper.driver.drives import read_drives, run_path
from sweeper.errors import SweeperError
from sweeper.runs.archive import pack_run, set_aside, unpack_run
from sweeper.runs.mirror import Mirror

ANSWER_S = 60.0
COPY_S = 3600.0


@dataclass(frozen=True)
class Copy:
    """A run directory on a node; ``drives`` counts the drivers it has seen, and of two copies the higher is newer."""

    node: str
    host: str
    path: str
    drives: int


def _look(runs_dir: str, study: str, node: str) -> Copy | None:
    path = run_path(runs_dir, study, in_job=True)
    drives = len(read_drives(path))
    return Copy(node, os.uname().nodename, str(path), drives) if drives else None


def copies(runs_dir: str, study: str) -> list[Copy]:
    """The copies of a run on the cluster's nodes, newest first. A node that does not answer has none."""
    nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
    asked = [on_node(node, _look).remote(runs_dir, study, node) for node in nodes]
    found = [copy for ref in asked if (copy := _answer(ref))]
    return sorted(found, key=lambda copy: copy.drives, reverse=True)


def _answer(ref: Any) -> Copy | None:
    try:
        copy: Copy | None = ray.get(ref, timeout=ANSWER_S)
    except RayError:
        return None
    return copy


def bring_newest(run: Path, runs_dir: str | None, mirror: Mirror | None) -> str | None:
    """Put the newest copy of a run at ``run`` on this node; returns what was done, None if it is here already.

    A driver need not land where the one before it ran. ``runs_dir`` is None where other nodes' runs are none of its
    business. An older copy that was here is kept under another name.

    Raises:
        SweeperError: the newest copy cannot be read.
    """
    here = len(read_drives(run))
    own = ray.get_runtime_context().get_node_id()
    found = copies(runs_dir, run.name) if runs_dir is not None else []
    elsewhere = next((copy for copy in found if copy.node != own), None)
    there = elsewhere.drives if elsewhere else 0
    mirrored = mirror.drives() if mirror else 0
    if max(there, mirrored) > here:
        set_aside(run)
    if elsewhere and there > here and there >= mirrored:
        _copy_from(elsewhere, run)
        return f"continues the run that lies on {elsewhere.host}:{elsewhere.path}; copied to this node"
    if mirror and mirrored > here:
        mirror.pull(run)
        return f"continues the run from {mirror.url}; copied to this node"
    return None


def _copy_from(copy: Copy, run: Path) -> None:
    try:
        content: bytes = ray.get(on_node(copy.node, _packed).remote(copy.path), timeout=COPY_S)
    except RayError as error:
        reason = said(error)
        raise SweeperError(
            f"the newest copy of the run, on {copy.host}:{copy.path}, cannot be read: {reason}"
        ) from None
    run.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=run.parent, suffix=".tmp") as archive:
        archive.write(content)
        archive.flush()
        unpack_run(Path(archive.name), run)


def _packed(path: str) -> bytes:
    with tempfile.TemporaryFile() as archive:
        pack_run(Path(path), archive)
        archive.seek(0)
        return archive.read()
