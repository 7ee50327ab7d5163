"""Where speculation starts and stops to pay. Pure functions.

At a load, tok/s = concurrency · A/τ with accept length A and step time τ, so against a baseline with A = 1
speculation pays if and only if A exceeds τ_spec/τ_base, the break-even accept length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from sweeper.analysis.intervals import (
    SAME,
    Array,
    LogEstimate,
    influences,
    joined,
    product,
    quotient,
    standard_error,
)
from sweeper.load.statistics import step_rate
from sweeper.load.window import steps, stretches, within
from sweeper.records import UNKNOWN_REPEATABILITY, Interval, Load, Repeatability, RequestRecord


def break_even_accept_length(step_time_s: float, baseline_step_time_s: float) -> float:
    """The accept length that a config must exceed to pay: τ_spec/τ_base, both in seconds at the same load.

    >>> break_even_accept_length(0.020, 0.008)
    2.5
    """
    return step_time_s / baseline_step_time_s


@dataclass(frozen=True)
class Arm:
    """One side of a comparison at one load: the requests of all visits to it, all answered."""

    load: Load
    requests: Sequence[RequestRecord]


def speedup(ours: Arm, baseline: Arm, repeats: Repeatability = UNKNOWN_REPEATABILITY) -> LogEstimate:
    """How much faster ``ours`` is than the baseline at the same load, on the prompts that both were sent.

    Closed loop: output tok/s, counted in each arm's steady window. Open loop: latency per token, since there the
    rate is given. What a prompt contributes to both arms cancels; the machine's moods do not, since the arms ran at
    other times: neither those that a window shows nor those that only ``repeats`` of a measurement show.

    Raises:
        ValueError: the two have no prompt in common.
    """
    arms = [{r.prompt: r for r in arm.requests} for arm in (ours, baseline)]
    shares = [_shares(arm) for arm in (ours, baseline)]
    prompts = [prompt for prompt in shares[0] if prompt in shares[1]]
    if not prompts:
        raise ValueError(f"no prompt in common at {ours.load}")
    speeds = [sum(s[p][0] for p in prompts) / sum(s[p][1] for p in prompts) for s in shares]
    mine, theirs = ([by_prompt[p] for p in prompts] for by_prompt in arms)
    off = LogEstimate(1.0, *repeats.at(ours.load))
    if ours.load.open_loop:
        moves = _influences(mine, [r.e2e_s for r in mine]) - _influences(theirs, [r.e2e_s for r in theirs])
        latency = LogEstimate(speeds[0] / speeds[1], standard_error(moves), max(len(moves) - 1, 1))
        visits = [len({r.lap for r in arm.requests}) for arm in (ours, baseline)]
        return product(latency, *(joined([SAME] * count, [1.0] * count, off) for count in visits))
    moves = _influences(mine, [steps(r) for r in mine]) - _influences(theirs, [steps(r) for r in theirs])
    per_step = LogEstimate(1.0, standard_error(moves), max(len(moves) - 1, 1))
    moods = [step_rate(stretches(arm.requests, arm.load), off) for arm in (ours, baseline)]
    return replace(product(per_step, quotient(*moods)), value=speeds[0] / speeds[1])


def speedup_at(
    load: Load,
    ours: Sequence[RequestRecord],
    plain: Sequence[RequestRecord],
    repeats: Repeatability = UNKNOWN_REPEATABILITY,
) -> LogEstimate:
    """``speedup`` at a load, from the requests that two servers answered at all their loads."""
    mine, theirs = (
        Arm(load, [r for r in found if r.load == str(at)]) for found, at in ((ours, load), (plain, load.cold))
    )
    return speedup(mine, theirs, repeats)


def _influences(requests: Sequence[RequestRecord], costs: Sequence[float]) -> Array:
    """By how much each request [requests] moves the log of tokens per cost."""
    return influences(np.array([r.completion_tokens for r in requests], float), np.array(costs, float))


def _shares(arm: Arm) -> dict[str, tuple[float, float]]:
    """(tokens, seconds) by prompt: those in the steady windows, or the whole request where the loop is open."""
    shares: dict[str, tuple[float, float]] = {}
    for visit in stretches(arm.requests, arm.load):
        for r in visit.requests:
            whole = float(r.completion_tokens), r.e2e_s
            tokens, seconds = whole if arm.load.open_loop else within(r, visit.window)
            before = shares.get(r.prompt, (0.0, 0.0))
            shares[r.prompt] = before[0] + tokens, before[1] + seconds
    return {prompt: share for prompt, share in shares.items() if share[1] > 0}


@dataclass(frozen=True)
class BreakEven:
    """The concurrency at which a speedup curve falls through 1.0.

    ``always`` and ``never`` speak of the tested loads only. ``concurrency`` is set for ``crosses``;
    ``low`` and ``high`` are where the lower and upper ends of the speedups cross (None: not within the
    tested loads). Where the curve itself does not cross, ``low`` says how far ``always`` is sure, ``high`` how far
    ``never`` may yet be wrong. ``sure``: both ends have the same verdict. ``pays_from`` is set where the
    config does not pay at the lowest load: where it begins to.
    """

    verdict: Literal["always", "never", "crosses", "rises"]
    concurrency: float | None = None
    low: float | None = None
    high: float | None = None
    pays_from: float | None = None
    sure: bool = False

    def __str__(self) -> str:
        start = f"pays from concurrency {self.pays_from:.1f}" if self.pays_from else "pays"
        if self.verdict == "always":
            known = f"surely up to concurrency {self.low:.1f}" if self.low else "not surely"
            return "pays at every tested load" + ("" if self.sure else f" (95 %: {known})")
        if self.verdict == "never":
            known = f"perhaps up to concurrency {self.high:.1f}" if self.high else "not surely"
            return "pays at no tested load" + ("" if self.sure else f" (95 %: {known})")
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
    middle, low, high = (
        crossing(concurrency, [getattr(s, end) for s in speedup]) for end in ("value", "low", "high")
    )
    sure = low.verdict == middle.verdict == high.verdict
    if middle.verdict == "rises":
        return replace(middle, sure=sure)
    return replace(middle, low=low.concurrency, high=high.concurrency, sure=sure)
