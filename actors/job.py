"""What a cluster's job server knows of a sweep, and what the driver's output tells beside it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone

from ray.dashboard.modules.job.pydantic_models import JobDetails
from ray.job_submission import JobStatus

STUDY, CODE, RUNS_DIR, PYTHON = "sweeper_study", "sweeper_code", "sweeper_runs_dir", "sweeper_python"
"""Keys of a job's metadata."""

_DRIVER = re.compile(r"(^|\s|/)(-m\s+sweeper|sweeper)\s+run\s")
_RUN_LINE = re.compile(r"^Run directory: (\S+?):(/.*)/([^/\s]+)$", re.MULTILINE)
_PROGRESS = re.compile(r"^(\d+/\d+ trials [^;\n]*)((?:; \S+ [^;\n]*)*)", re.MULTILINE)
"""How far the sweep is; then, of every busy server, what it runs and what it does."""


@dataclass(frozen=True)
class Job:
    """A sweep on the cluster. ``study`` is "" while a job that was not sent by ``sweeper submit`` has not said it."""

    id: str
    study: str
    state: JobStatus
    began: datetime | None
    runs_dir: str
    progress: str = ""
    message: str = ""
    exit_code: int | None = None
    python: str = "python"
    servers: tuple[tuple[str, str], ...] = ()
    """Of every busy server: what it runs, and what it does, by the driver's last word."""

    @property
    def over(self) -> bool:
        return bool(self.state.is_terminal())


def job_of(details: JobDetails, log: str) -> Job:
    """From what the job server and the driver's own output say."""
    metadata = details.metadata or {}
    said = _RUN_LINE.findall(log)
    _, path, study = said[-1] if said else ("", "runs", "")
    progress, servers = (_PROGRESS.findall(log) or [("", "")])[-1]
    return Job(
        id=str(details.submission_id),
        study=metadata.get(STUDY, study),
        state=details.status,
        began=_when(details.start_time),
        runs_dir=metadata.get(RUNS_DIR, path),
        progress=progress,
        message=details.message or "",
        exit_code=details.driver_exit_code,
        python=metadata.get(PYTHON, "python"),
        servers=tuple(_server(words) for words in servers.split("; ")[1:]),
    )


def _server(words: str) -> tuple[str, str]:
    """``trial-0003 measuring concurrency 4, 118 tok/s`` -> (``trial-0003``, the rest)"""
    doing, _, phase = words.partition(" ")
    return doing, phase


def is_sweep(details: JobDetails) -> bool:
    return bool(details.submission_id) and (
        STUDY in (details.metadata or {}) or bool(_DRIVER.search(details.entrypoint))
    )


def _when(milliseconds: int | None) -> datetime | None:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc) if milliseconds else None
