"""What a launch told of a config, at the objective loads together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial

from sweeper.acceptance import add_histograms
from sweeper.records import Interval, Load
from sweeper.speculation import SpeculationConfig
from sweeper.storage.stored_trial import record_of, speedups_of

SAME_PROMPTS = 0.5
"""Share of an accept length's standard error that configs do not have in common: they all get the same prompts."""
LEAST_ERROR = 0.005
LARGEST_ERROR = 0.5
"""Of a logarithm; an interval from two requests may be endless."""


@dataclass(frozen=True)
class Outcome:
    """Geometric means over the objective loads, as logarithms with standard deviations; the histograms' sum."""

    config: SpeculationConfig
    log_accept_length: float
    accept_error: float
    log_speedup: float
    speedup_error: float
    histogram: tuple[int, ...] = ()

    @property
    def log_cost(self) -> float:
        """Of a verify round, as a multiple of the plain step: ln ρ = ln A - ln speedup."""
        return self.log_accept_length - self.log_speedup


def outcome(trial: FrozenTrial, loads: Sequence[Load]) -> Outcome | None:
    """Of a finished trial, by what its server really ran; None where some objective load has no usable result."""
    record = record_of(trial)
    speedups = speedups_of(trial)
    if record is None or not all(load in speedups and record.at(load) for load in loads):
        return None
    speeds = [speedups[load] for load in loads]
    if not all(0 < speed.value < math.inf for speed in speeds):
        return None
    points = [point for load in loads if (point := record.at(load))]
    count = len(points)
    lengths = [point.accept_length for point in points]
    return Outcome(
        record.effective,
        sum(math.log(max(length.value, 1.0)) for length in lengths) / count,
        _bounded(SAME_PROMPTS * math.hypot(*map(_log_error, lengths)) / count),
        sum(math.log(speed.value) for speed in speeds) / count,
        _bounded(math.hypot(*(speed.error for speed in speeds)) / count),
        add_histograms(point.histogram for point in points),
    )


def _log_error(length: Interval) -> float:
    """Standard error of the logarithm, from a 95 % interval."""
    return math.log(length.high / length.low) / 4 if 0 < length.low <= length.high else LARGEST_ERROR


def _bounded(error: float) -> float:
    return min(max(error, LEAST_ERROR), LARGEST_ERROR) if error < math.inf else LARGEST_ERROR
