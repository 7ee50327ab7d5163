"""Brings a run from a cluster to this machine, through nothing but the job server's address."""

from __future__ import annotations

import hashlib
import json
import shlex
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import requests

from actors.jobs import JobServer, shipped_code
from actors.serve_run import ANNOUNCEMENT
from sweeper.errors import SweeperError
from sweeper.runs.archive import new_directory, replace_directory, unpack_run
from sweeper.runs.fetched import mark, require_replaceable

PACKING_S = 900.0


@dataclass(frozen=True)
class Wanted:
    """Which run; ``runs_dir`` as its study file has it, ``python`` as its driver was started with."""

    study: str
    runs_dir: str = "runs"
    python: str = "python"


def fetch_run(server: JobServer, wanted: Wanted, folder: Path, say: Callable[[str], None]) -> Path:
    """Put the newest copy of a run into ``folder``, complete or not at all; its driver may be running meanwhile.

    Raises:
        SweeperError: no node has it, or it does not arrive whole; or something else is in its place here.
    """
    target = folder / wanted.study
    require_replaceable(target)
    folder.mkdir(parents=True, exist_ok=True)
    helper = f"sweeper-fetch-{wanted.study}-{uuid.uuid4().hex[:8]}"
    words = [wanted.python, "-m", "actors.serve_run", wanted.runs_dir, wanted.study]
    environment = {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "30"}}
    server.send(
        {
            "entrypoint": shlex.join(words),
            "submission_id": helper,
            "runtime_env": {**shipped_code(), **environment},
        }
    )
    try:
        offer = _offer(server, helper)
        say(f"{offer['host']}:{offer['path']}, {offer['bytes'] / 2**20:.1f} MiB")
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".tmp") as archive:
            _download(server, offer, archive)
            _unpack(Path(archive.name), target, offer)
    finally:
        _end(server, helper)
    return target


def _offer(server: JobServer, helper: str) -> dict[str, Any]:
    deadline = time.monotonic() + PACKING_S
    while time.monotonic() < deadline:
        job = server.result(helper)
        log = server.log(helper)
        for line in log.splitlines():
            if line.startswith(ANNOUNCEMENT):
                offer: dict[str, Any] = json.loads(line.removeprefix(ANNOUNCEMENT))
                if "problem" in offer:
                    raise SweeperError(offer["problem"])
                return offer
        if job.over:
            reason = (log.strip() or job.message).splitlines()
            raise SweeperError(f"the cluster did not hand the run out: {reason[-1] if reason else job.state}")
        time.sleep(0.5)
    raise SweeperError(f"the cluster did not hand the run out within {PACKING_S:.0f} s; is it busy?")


def _download(server: JobServer, offer: dict[str, Any], archive: IO[bytes]) -> None:
    digest, size = hashlib.sha256(), 0
    try:
        for block in server.node_file(offer["node"], offer["file"]):
            archive.write(block)
            digest.update(block)
            size += len(block)
    except requests.RequestException as error:
        raise SweeperError(f"the run could not be downloaded: {error}") from None
    archive.flush()
    if digest.hexdigest() != offer["sha256"]:
        raise SweeperError(f"the run did not arrive whole ({size} of {offer['bytes']} bytes); fetch it again")


def _unpack(archive: Path, target: Path, offer: dict[str, Any]) -> None:
    with new_directory(target) as scratch:
        new = scratch / target.name
        unpack_run(archive, new)
        mark(new, f"{offer['host']}:{offer['path']}")
        replace_directory(new, target)


def _end(server: JobServer, helper: str) -> None:
    """Stop the helper, which removes its archive, and take it off the list; what fails ends by itself later."""
    with suppress(SweeperError, RuntimeError, requests.RequestException):
        server.stop(helper, timeout_s=30)
        server.client.delete_job(helper)
