"""How a trial is kept in the Optuna study, and how it is read back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.trial import FrozenTrial
from pydantic import TypeAdapter, ValidationError

from sweeper.analysis.intervals import LogEstimate
from sweeper.errors import StudyChangedError
from sweeper.records import Load, TrialRecord, trial_record_json
from sweeper.search.candidates import config_from, params_of
from sweeper.speculation import SpeculationConfig
from sweeper.storage.attributes import RECORD, packed, unpacked

Speedups = Mapping[Load, LogEstimate]

SERVER = "server"
"""User attribute: the actor that a trial was given to."""


def label(number: int) -> str:
    """Name of a trial's files: ``trial-0007``."""
    return f"trial-{number:04d}"


def objective(speedups: Speedups, loads: Sequence[Load]) -> float:
    """What Optuna maximises: the geometric mean of the speedups at the objective loads."""
    return math.exp(sum(math.log(speedups[load].value) for load in loads) / len(loads))


def attributes(record: TrialRecord, speedups: Speedups) -> list[tuple[str, Any]]:
    """A trial's user attributes: readable numbers per load for people, the whole record for the reports.

    The record comes last, so that it stands for all of them.
    """
    values: dict[str, Any] = {"config": str(record.effective), "state": record.state.value}
    if record.requested != record.effective:
        values["requested"] = str(record.requested)
    if record.overrides:
        values["overrides"] = list(record.overrides)
    if record.failure:
        values["failure"] = f"{record.failure.kind.value}: {record.failure.message}"
    if record.pruned:
        values["pruned"] = record.pruned
    if record.attempts:
        values["attempts"] = [f"{a.failure.kind.value}, then {a.change}" for a in record.attempts]
    for point in record.load_points:
        values[f"tok_s {point.load}"] = round(point.output_tok_s.value, 2)
        values[f"accept_length {point.load}"] = round(point.accept_length.value, 4)
        values[f"step_time_ms {point.load}"] = round(point.step_time_s * 1000, 3)
    for load, speedup in speedups.items():
        values[f"speedup {load}"] = round(speedup.value, 4)
    if record.comparison:
        values["outputs_equal"] = record.comparison.equal
    values["speedups"] = speedups_json(speedups)
    return [*values.items(), *packed(RECORD, trial_record_json.dump_python(record, mode="json"))]


def record_of(trial: FrozenTrial) -> TrialRecord | None:
    """The record of a finished trial, None where it never came back.

    Raises:
        StudyChangedError: another release wrote it.
    """
    try:
        stored = unpacked(trial.user_attrs, RECORD)
        return trial_record_json.validate_python(stored) if stored else None
    except ValidationError as error:
        why = f"{error.errors()[0]['msg']} ({'.'.join(map(str, error.errors()[0]['loc']))})"
    except (KeyError, ValueError, TypeError) as error:  # parts are missing, or hold something else
        why = f"{type(error).__name__} {error}"
    raise StudyChangedError(
        f"trial {trial.number} was written by hand or by another release of sweeper and cannot be read: {why}"
    )


def speedups_json(speedups: Speedups) -> dict[str, tuple[float, float, float]]:
    """By load's name: value, standard error of its log, degrees of freedom."""
    return {str(load): (s.value, s.error, s.freedom) for load, s in speedups.items()}


def speedups_from(stored: Mapping[str, Sequence[float]]) -> dict[Load, LogEstimate]:
    """What ``speedups_json`` gave."""
    return {Load.parse(name): LogEstimate(*values) for name, values in stored.items()}


_speedups = TypeAdapter(dict[str, tuple[float, float, float]])


def speedups_of(trial: FrozenTrial) -> dict[Load, LogEstimate]:
    """Speedups by load of a finished trial.

    Raises:
        StudyChangedError: something else was written in their place.
    """
    try:
        return speedups_from(_speedups.validate_python(trial.user_attrs.get("speedups", {})))
    except ValueError as error:
        raise StudyChangedError(
            f"trial {trial.number}: its attribute 'speedups' was written by hand or by another release of sweeper and "
            f"cannot be read: {error}"
        ) from None


def config_of(trial: FrozenTrial) -> SpeculationConfig:
    """The effective config that a proposed trial stands for."""
    return config_from(params_of(trial))
