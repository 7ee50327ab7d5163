"""The no-speculation arm, measured once per key and kept on disk as readable JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweeper.errors import SweeperError
from sweeper.load.repeatability import repeatability
from sweeper.records import Baseline, Hardware, TrialResult, baseline_json, by_load
from sweeper.runs.request_table import read_requests, write_requests
from sweeper.runs.whole_files import write_whole
from sweeper.server.checkpoint import checkpoint_identity
from sweeper.server.setup import plain_flags
from sweeper.trial.order import TrialPlan

FORMAT = 4
"""Raise it when what a baseline measures changes: older cache entries then no longer match."""


def baseline_settings(plan: TrialPlan, hardware: Hardware) -> dict[str, Any]:
    """Everything a baseline depends on, in readable form: two equal ones give the same numbers."""
    study = plan.study
    return {
        "format": FORMAT,
        "hardware": hardware.key,
        "driver": hardware.driver,
        "host": hardware.host if study.engine.device == "cpu" else "",
        "engine_version": plan.setup.version,
        "flags": plain_flags(study, plan.setup),
        "env": study.engine.env,
        "target": checkpoint_identity(study.engine.model),
        "workload": study.workload.model_dump(exclude={"prompts"}),
        "prompts": plan.prompts.fingerprint,
        "measurement": study.measurement.model_dump(exclude={"request_timeout_s", "stall_timeout_s"}),
        "laps": study.baseline.laps,
    }


def baseline_key(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def make_baseline(settings: Mapping[str, Any], result: TrialResult) -> Baseline:
    """A cache entry from a completed no-speculation trial."""
    return Baseline(
        key=baseline_key(settings),
        settings=settings,
        record=result.record,
        requests=result.requests,
        outputs=result.outputs,
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        repeatability=repeatability(by_load(result.record.loads, result.requests)),
    )


class BaselineCache:
    """Two files per key in a directory: JSON for people, and the table of its requests."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).expanduser()

    def path(self, key: str) -> Path:
        return self.directory / f"{key}.json"

    def load(self, key: str) -> Baseline | None:
        """The cached baseline, or None: never measured, or written by an incompatible release."""
        return read_baseline(self.path(key))

    def save(self, baseline: Baseline) -> Path:
        """Write it atomically, so that a reader never sees half of it."""
        write_baseline(self.path(baseline.key), baseline)
        return self.path(baseline.key)

    def forget(self, key: str) -> None:
        """Drop an entry that is no longer true."""
        for path in _files(self.path(key)):
            path.unlink(missing_ok=True)


def _files(path: Path) -> tuple[Path, Path]:
    return path, path.with_suffix(".parquet")


def write_baseline(path: Path, baseline: Baseline) -> None:
    """``path`` as JSON, the requests beside it; the JSON comes last and makes the entry valid."""
    text, table = _files(path)
    text.unlink(missing_ok=True)  # it must not stand beside other requests than its own
    write_requests(table, baseline.requests)
    write_whole(text, baseline_json.dump_json(replace(baseline, requests=()), indent=1))


def read_baseline(path: Path) -> Baseline | None:
    """What ``write_baseline`` wrote; None where there is nothing that this release can read."""
    text, table = _files(path)
    try:
        baseline = baseline_json.validate_json(text.read_bytes())
        return replace(baseline, requests=read_requests(table))
    except (FileNotFoundError, ValidationError, SweeperError):
        return None
