"""How a trial is kept in the Optuna study, and how it is read back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial

from sweeper.records import Interval, TrialRecord, trial_record_json
from sweeper.search.candidates import config_from, params_of
from sweeper.speculation import SpeculationConfig


def label(number: int) -> str:
    """Name of a trial's files: ``trial-0007``."""
    return f"trial-{number:04d}"


def objective(speedups: Mapping[int, Interval], loads: Sequence[int]) -> float:
    """What Optuna maximises: the geometric mean of the speedups at the objective loads."""
    return math.exp(sum(math.log(speedups[c].value) for c in loads) / len(loads))


def attributes(record: TrialRecord, speedups: Mapping[int, Interval]) -> dict[str, Any]:
    """A trial's user attributes: readable numbers per load for people, the whole record for the reports."""
    values: dict[str, Any] = {"config": str(record.effective), "state": record.state.value}
    if record.requested != record.effective:
        values["requested"] = str(record.requested)
    if record.overrides:
        values["overrides"] = list(record.overrides)
    if record.failure:
        values["failure"] = f"{record.failure.kind.value}: {record.failure.message}"
    if record.attempts:
        values["attempts"] = [f"{a.failure.kind.value}, then {a.change}" for a in record.attempts]
    for point in record.load_points:
        c = point.concurrency
        values[f"tok_s@{c}"] = round(point.output_tok_s.value, 2)
        values[f"accept_length@{c}"] = round(point.accept_length.value, 4)
        values[f"step_time_ms@{c}"] = round(point.step_time_s * 1000, 3)
        values[f"speedup@{c}"] = round(speedups[c].value, 4)
    if record.comparison:
        values["outputs_equal"] = record.comparison.equal
    values["speedups"] = {str(c): [s.value, s.low, s.high] for c, s in speedups.items()}
    values["record"] = trial_record_json.dump_python(record, mode="json")
    return values


def record_of(trial: FrozenTrial) -> TrialRecord | None:
    """The record of a finished trial, None where it never came back."""
    stored = trial.user_attrs.get("record")
    return trial_record_json.validate_python(stored) if stored else None


def speedups_of(trial: FrozenTrial) -> dict[int, Interval]:
    """Speedups by concurrency of a finished trial."""
    return {int(c): Interval(*values) for c, values in trial.user_attrs.get("speedups", {}).items()}


def config_of(trial: FrozenTrial) -> SpeculationConfig:
    """The effective config that a proposed trial stands for."""
    return config_from(params_of(trial))
