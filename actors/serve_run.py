"""``python -m actors.serve_run RUNS_DIR STUDY``: a job that lays a run where the job server's address can hand it out.

The newest copy is packed on its own node, into the node's folder of Ray logs, from where the dashboard streams it.
The archive goes when the job is stopped, or after some minutes.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from actors.node_code import on_node
from actors.run_location import copies
from sweeper.runs.archive import pack_run

ANNOUNCEMENT = "SWEEPER-RUN "
KEPT_S = 1800.0


def log_directory() -> Path:
    """The folder of this node's Ray session that the dashboard serves; Ray has no public name for it."""
    node: Any = ray._private.worker.global_worker.node
    return Path(node.get_logs_dir_path())


def _pack(path: str) -> dict[str, Any]:
    """On the run's node: the archive's name, size and digest."""
    name = f"sweeper-{Path(path).name}-{uuid.uuid4().hex}.tar"
    target = log_directory() / name
    descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w+b") as archive:
            pack_run(Path(path), archive)
            size = archive.tell()
            archive.seek(0)
            digest = hashlib.sha256()
            while block := archive.read(1 << 20):
                digest.update(block)
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return {"file": name, "bytes": size, "sha256": digest.hexdigest()}


def _remove(name: str) -> None:
    (log_directory() / name).unlink(missing_ok=True)


def main(runs_dir: str, study: str) -> int:
    """0 once the archive was there for as long as it was wanted; 2 if there is no such run."""
    ray.init(address="auto", log_to_driver=False)
    found = copies(runs_dir, study)
    if not found:
        problem = f"no node of the cluster has a run of study {study!r} (under {runs_dir!r})"
        print(ANNOUNCEMENT + json.dumps({"problem": problem}), flush=True)
        return 2
    copy = found[0]
    try:
        packed = ray.get(on_node(copy.node, _pack).remote(copy.path))
    except RayError as error:
        problem = f"{copy.host}:{copy.path} cannot be packed: {str(error).strip().splitlines()[-1]}"
        print(ANNOUNCEMENT + json.dumps({"problem": problem}), flush=True)
        return 2
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        place = {"node": copy.node, "host": copy.host, "path": copy.path}
        print(ANNOUNCEMENT + json.dumps({**packed, **place}), flush=True)
        time.sleep(KEPT_S)
    except KeyboardInterrupt:
        pass
    finally:
        ray.get(on_node(copy.node, _remove).remote(packed["file"]))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
