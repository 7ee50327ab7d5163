"""Who drove a run, in order: the copy of a run with the longest list is the newest, whatever clocks say."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from sweeper.runs.whole_files import write_whole

FILE = "drives.json"
JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray's job server sets it for the driver of a job."""


def inside_job(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the driver of a Ray job, whose working directory Ray throws away."""
    return JOB_CONFIG in environment


def submission_id(environment: Mapping[str, str] = os.environ) -> str:
    """The job's id, "" outside a job."""
    try:
        metadata = json.loads(environment.get(JOB_CONFIG, "{}")).get("metadata", {})
    except (ValueError, AttributeError):
        return ""
    return str(metadata.get("job_submission_id", ""))


def run_path(runs_dir: str, study: str, in_job: bool) -> Path:
    """Where a run lies on this node.

    A relative ``runs_dir`` counts from the working directory; in a job, where that is a copy which Ray deletes, from
    ``$XDG_DATA_HOME/sweeper`` (``~/.local/share/sweeper``), so that a later job on the node continues the study.
    """
    folder = Path(runs_dir).expanduser()
    if in_job and not folder.is_absolute():
        share = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        folder = Path(share) / "sweeper" / folder
    return folder / study


def read_drives(run: Path) -> list[dict[str, str]]:
    """One entry per driver: its host, its job and when it began; [] for a run that none has begun."""
    try:
        found = json.loads((run / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return []
    return list(found) if isinstance(found, list) else []


def add_drive(run: Path) -> None:
    """Note that this process drives the run now."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    drive = {"host": os.uname().nodename, "job": submission_id(), "began": now}
    write_whole(run / FILE, json.dumps([*read_drives(run), drive], indent=1).encode())
