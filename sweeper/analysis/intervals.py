"""95 % confidence intervals of rates and their ratios. Pure functions; the same data give the same interval.

A rate scatters for two reasons. The machine has moods, which all requests in flight share; so the window is cut into
*slices* of time, whose counts nearly are independent (batch means: Law, Simulation Modeling and Analysis, chapter 9).
And prompts differ in how well they can be drafted, independently of each other. With r = Σn/Σd over items k (slices or
prompts), log r moves by u_k = n_k/Σn - d_k/Σd with each item (Cochran, Sampling Techniques, chapter 6), and

    Var(log r) = B/(B-1) · Σ u_k² · (1+ρ)/(1-ρ),

where ρ, for slices only, is the correlation of neighbours (a first-order autoregression; it also takes degrees of
freedom away). Student's t makes intervals of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from sweeper.records import Interval

UNKNOWN_ERROR = 50.0
"""Standard error of a logarithm of which nothing is known; finite, so that it can be stored as JSON."""

MOST_CORRELATED = 0.8
LEAST_FREEDOM = 3.0

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LogEstimate:
    """A positive quantity with the standard error of its logarithm and that error's degrees of freedom."""

    value: float
    error: float
    freedom: float

    @property
    def interval(self) -> Interval:
        reach = math.exp(min(self.relative_half_width, UNKNOWN_ERROR))
        return Interval(self.value, self.value / reach, self.value * reach)

    @property
    def relative_half_width(self) -> float:
        """Of the 95 % interval, in log space: 0.03 is about 3 %."""
        return float(stdtrit(self.freedom, 0.975)) * self.error


SAME = LogEstimate(1.0, 0.0, 1.0)
"""A factor of which there is no doubt."""


def influences(numerators: Array, denominators: Array) -> Array:
    """u [items]: by how much each item moves log(Σnumerators/Σdenominators)."""
    moves: Array = numerators / numerators.sum() - denominators / denominators.sum()
    return moves


def standard_error(influence: Array) -> float:
    """Of the sum of independent influences [items]."""
    count = len(influence)
    return math.sqrt(count / (count - 1) * float((influence**2).sum())) if count > 1 else UNKNOWN_ERROR


def correlation(influence: Array) -> float:
    """Of neighbours in time, in [0, MOST_CORRELATED]; a short series shows (1+3ρ)/B too little of it (Kendall)."""
    count = len(influence)
    own = float((influence**2).sum())
    if count < 5 or not own:
        return 0.0
    seen = float((influence[:-1] * influence[1:]).sum()) / own
    return min(MOST_CORRELATED, max(0.0, (count * seen + 1) / (count - 3)))


def ratio(numerators: ArrayLike, denominators: ArrayLike) -> LogEstimate:
    """Σnumerators/Σdenominators over independent items, both [items]; fewer than two say nothing of the error."""
    top, bottom = np.asarray(numerators, float), np.asarray(denominators, float)
    error = standard_error(influences(top, bottom))
    return LogEstimate(float(top.sum() / bottom.sum()), error, max(len(top) - 1, 1))


def rate(counts: Array, seconds: float) -> LogEstimate:
    """Σcounts/seconds over slices of time [slices] that are equally long together ``seconds``."""
    influence = influences(counts, np.full(len(counts), 1.0))
    rho = correlation(influence)
    inflation = (1 + rho) / (1 - rho)
    freedom = max(LEAST_FREEDOM, (len(counts) - 1) / inflation)
    return LogEstimate(
        float(counts.sum() / seconds), standard_error(influence) * math.sqrt(inflation), freedom
    )


def product(*factors: LogEstimate) -> LogEstimate:
    """Of independent estimates; degrees of freedom by Welch and Satterthwaite."""
    variance = sum(f.error**2 for f in factors)
    spread = sum(f.error**4 / f.freedom for f in factors)
    freedom = variance**2 / spread if spread else min(f.freedom for f in factors)
    return LogEstimate(math.prod(f.value for f in factors), math.sqrt(variance), freedom)


def quotient(a: LogEstimate, b: LogEstimate) -> LogEstimate:
    """a/b of independent estimates."""
    return product(a, LogEstimate(1 / b.value, b.error, b.freedom))


def joined(
    rates: Sequence[LogEstimate], seconds: Sequence[float], between: LogEstimate = SAME
) -> LogEstimate:
    """The rate over several stretches of time, each ``seconds`` long: Σ rate·seconds / Σ seconds.

    ``between``: by what factor, with its error, any such stretch is off for reasons that it does not show itself.
    """
    counts = [rate.value * length for rate, length in zip(rates, seconds, strict=True)]
    shares = [count / sum(counts) for count in counts]
    own = [LogEstimate(1.0, share * r.error, r.freedom) for share, r in zip(shares, rates, strict=True)]
    off = LogEstimate(1.0, between.error * math.sqrt(sum(share**2 for share in shares)), between.freedom)
    return replace(product(*own, off), value=sum(counts) / sum(seconds))


def unexplained(groups: Sequence[Sequence[LogEstimate]]) -> LogEstimate:
    """How much repeats of the same thing differ beyond their own errors: a factor 1 with that error.

    The variance between repeats, less the mean of their own: a one-way analysis of variance, with Satterthwaite's
    degrees of freedom. Errors that explain all of it leave nothing.
    """
    deviation, freedom = scatter(groups)
    own = [estimate.error**2 for group in groups if len(group) > 1 for estimate in group]
    left = deviation**2 - sum(own) / len(own) if own else 0.0
    if left <= 0:
        return SAME
    return LogEstimate(1.0, math.sqrt(left), freedom * (left / deviation**2) ** 2)


def scatter(groups: Sequence[Sequence[LogEstimate]]) -> tuple[float, int]:
    """How much repeats of the same thing differ, over several things: (standard deviation of a log, its freedom)."""
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum(
        float(((logs := np.log([e.value for e in group])) - logs.mean()).dot(logs - logs.mean()))
        for group in groups
    )
    return (math.sqrt(squares / freedom), freedom) if freedom else (0.0, 0)


def pooled(repeats: Sequence[LogEstimate], between: tuple[float, int] = (0.0, 0)) -> LogEstimate:
    """Geometric mean of one quantity measured several times, for instance on several launches.

    ``between`` is the ``scatter`` of such repeats. Launches of one config differ by more than their own intervals say,
    so the larger of the two errors counts, with its own degrees of freedom.
    """
    count = len(repeats)
    value = math.exp(sum(math.log(estimate.value) for estimate in repeats) / count)
    mean = product(*repeats)
    own = LogEstimate(value, mean.error / count, mean.freedom)
    scattered = LogEstimate(value, between[0] / math.sqrt(count), max(between[1], 1))
    return max(own, scattered, key=lambda estimate: estimate.error)


def geometric_mean(values: Sequence[Interval]) -> Interval:
    """Of several intervals, end by end: at least as wide as for independent ones."""

    def mean(ends: list[float]) -> float:
        return math.exp(sum(math.log(end) for end in ends) / len(ends))

    return Interval(*(mean([getattr(value, end) for value in values]) for end in ("value", "low", "high")))
