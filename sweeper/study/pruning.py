"""Ends a trial early whose config is surely not the best one at the objective loads. Pure functions.

Optuna's WilcoxonPruner ranks per-prompt values and would prune a config that is slower on most prompts though faster
on the long ones; what is deployed is the sum, so the intervals of the speedups decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeper.analysis.intervals import geometric_mean
from sweeper.breakeven import Arm, speedup
from sweeper.records import UNKNOWN_REPEATABILITY, Load, Repeatability, RequestRecord

Requests = Mapping[Load, Sequence[RequestRecord]]


@dataclass(frozen=True)
class Bar:
    """What a config must be able to reach at the objective loads: ``least``, the lower bound of ``holder``'s speedup.

    ``baseline`` holds the requests of the arm without speculation at these loads.
    """

    baseline: Requests
    least: float
    holder: str
    repeats: Repeatability = UNKNOWN_REPEATABILITY


def hopeless(bar: Bar, measured: Requests) -> str:
    """Why a trial need not be measured further, or nothing; ``measured`` holds its requests by load."""
    if not bar.baseline.keys() <= measured.keys():
        return ""
    speedups = [
        speedup(Arm(load, measured[load]), Arm(load, plain), bar.repeats)
        for load, plain in bar.baseline.items()
    ]
    reached = geometric_mean([estimate.interval for estimate in speedups])
    if reached.high >= bar.least:
        return ""
    return f"speedup {reached:.2f} at the objective, surely below the {bar.least:.2f} of {bar.holder}"
