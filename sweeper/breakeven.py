"""Where speculation starts and stops to pay. Pure functions.

At a load, tok/s = concurrency · A/τ with accept length A and step time τ, so against a baseline with A = 1
speculation pays if and only if A exceeds τ_spec/τ_base, the break-even accept length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sweeper.intervals import paired_ratio
from sweeper.records import Interval, LoadPoint, RequestRecord


def break_even_accept_length(step_time_s: float, baseline_step_time_s: float) -> float:
    """The accept length that a config must exceed to pay: τ_spec/τ_base, both in seconds at the same load.

    >>> break_even_accept_length(0.020, 0.008)
    2.5
    """
    return step_time_s / baseline_step_time_s


@dataclass(frozen=True)
class Arm:
    """One side of a comparison at one load: its statistics and the requests they come from."""

    point: LoadPoint
    requests: Sequence[RequestRecord]


def speedup(trial: Arm, baseline: Arm) -> Interval:
    """Output tok/s of a trial over the baseline's at the same load.

    The value is the ratio of the two rates; its interval is that of the paired per-prompt ratio, so that
    what a prompt contributes to both arms cancels.
    """
    value = trial.point.output_tok_s.value / baseline.point.output_tok_s.value
    paired, low, high = paired_ratio(trial.requests, baseline.requests)
    return Interval(value, low * value / paired, high * value / paired)


@dataclass(frozen=True)
class BreakEven:
    """The concurrency at which a speedup curve falls through 1.0.

    ``always`` and ``never`` speak of the tested loads only. ``concurrency`` is set for ``crosses``;
    ``low`` and ``high`` are where the lower and upper ends of the speedups cross (None: not within the
    tested loads). ``pays_from`` is set where the config does not pay at the lowest load: where it begins to.
    """

    verdict: Literal["always", "never", "crosses", "rises"]
    concurrency: float | None = None
    low: float | None = None
    high: float | None = None
    pays_from: float | None = None

    def __str__(self) -> str:
        start = f"pays from concurrency {self.pays_from:.1f}" if self.pays_from else "pays"
        if self.verdict == "always":
            return "pays at every tested load"
        if self.verdict == "never":
            return "pays at no tested load"
        if self.verdict == "rises":
            return f"{start} on, up to the tested maximum"
        low = f"{self.low:.1f}" if self.low else "below the tested loads"
        high = f"{self.high:.1f}" if self.high else "above the tested loads"
        return f"{start} up to concurrency {self.concurrency:.1f} (95 %: {low} to {high})"


def crossing(concurrency: Sequence[int], speedup: Sequence[float]) -> BreakEven:
    """Where a speedup curve last falls through 1.0, interpolated linearly in log concurrency.

    ``concurrency`` ascends.

    >>> crossing([1, 4, 16], [1.5, 1.2, 0.8]).concurrency
    8.0
    """
    if all(s > 1 for s in speedup):
        return BreakEven("always")
    if all(s <= 1 for s in speedup):
        return BreakEven("never")
    steps = list(zip(concurrency, speedup, concurrency[1:], speedup[1:], strict=False))
    falls = [_at_one(*step) for step in steps if step[1] > 1 >= step[3]]
    rises = [_at_one(*step) for step in steps if step[1] <= 1 < step[3]]
    pays_from = rises[0] if speedup[0] <= 1 else None
    if speedup[-1] > 1:
        return BreakEven("rises", pays_from=pays_from or rises[-1])
    return BreakEven("crosses", falls[-1], pays_from=pays_from)


def _at_one(c0: int, s0: float, c1: int, s1: float) -> float:
    """The concurrency between two points of a curve at which it meets 1.0."""
    share = (1 - s0) / (s1 - s0)
    return round(math.exp(math.log(c0) * (1 - share) + math.log(c1) * share), 6)


def break_even(concurrency: Sequence[int], speedup: Sequence[Interval]) -> BreakEven:
    """Break-even concurrency of a config with the interval that the speedups' intervals give."""
    middle = crossing(concurrency, [s.value for s in speedup])
    if middle.verdict != "crosses":
        return middle
    low = crossing(concurrency, [s.low for s in speedup])
    high = crossing(concurrency, [s.high for s in speedup])
    return replace(middle, low=low.concurrency, high=high.concurrency)
