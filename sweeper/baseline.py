"""The no-speculation arm, measured once per key and kept on disk as readable JSON."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweeper.records import Baseline, Hardware, TrialResult, baseline_json
from sweeper.server.setup import checkpoint_identity, plain_flags
from sweeper.trial import TrialPlan

FORMAT = 2
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
    )


class BaselineCache:
    """One JSON file per key in a directory."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory).expanduser()

    def path(self, key: str) -> Path:
        return self.directory / f"{key}.json"

    def load(self, key: str) -> Baseline | None:
        """The cached baseline, or None: never measured, or written by an incompatible release."""
        try:
            return baseline_json.validate_json(self.path(key).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def save(self, baseline: Baseline) -> Path:
        """Write atomically: a reader sees the old file or the new one."""
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self.path(baseline.key)
        scratch = path.with_suffix(f".{os.getpid()}.tmp")
        scratch.write_bytes(baseline_json.dump_json(baseline, indent=1))
        scratch.replace(path)
        return path
