"""One number of two runs: by how much it changed, and whether that is more than noise. Pure functions.

With values a and b and independent 95 % intervals, log(b/a) has the variance of both, and that of launches, which no
interval of a single one holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from scipy.special import ndtr, ndtri

from reports.rows import Row
from sweeper.records import Interval

CERTAINTY = 0.95
"""Of no change at all being called one, in a whole comparison: Holm's method over all changes."""

Z = float(ndtri(0.975))
Measure = Literal["output tok/s", "speedup", "accept length"]


class Change(Row):
    """One measure of one config at one load, before and after. More is better in all of them."""

    config: str
    load: str
    measure: Measure
    before: Interval
    after: Interval
    ratio: Interval = Field(description="after over before, with its own 95 % interval, launches included")
    beyond_noise: bool = Field(
        description="surely a change, at 95 % for all changes of the comparison together"
    )
    counts: bool = Field(description="whether it can be a regression: tok/s on other hardware cannot")

    @property
    def worse(self) -> bool:
        return self.beyond_noise and self.counts and self.ratio.value < 1


def change_of(
    what: tuple[str, str, Measure], values: tuple[Interval, Interval], noise: float, counts: bool
) -> Change:
    """``noise``: standard deviation of the log that the intervals do not hold."""
    error = math.sqrt(sum(_error(value) ** 2 for value in values) + noise**2)
    ratio = values[1].value / values[0].value
    reach = math.exp(Z * error)
    return Change(
        config=what[0],
        load=what[1],
        measure=what[2],
        before=values[0],
        after=values[1],
        ratio=Interval(ratio, ratio / reach, ratio * reach),
        beyond_noise=False,
        counts=counts,
    )


def _error(value: Interval) -> float:
    """Standard error of the log, from the interval's width."""
    return math.log(value.high / value.low) / (2 * Z)


def judged(changes: Sequence[Change]) -> list[Change]:
    """Which changes are surely ones, all together (Holm 1979: the k-th smallest p against (1-c)/(m-k))."""
    chances = [_chance(change) for change in changes]
    order = sorted(range(len(changes)), key=lambda i: chances[i])
    sure: set[int] = set()
    for rank, index in enumerate(order):
        if chances[index] > (1 - CERTAINTY) / (len(changes) - rank):
            break
        sure.add(index)
    return [change.model_copy(update={"beyond_noise": i in sure}) for i, change in enumerate(changes)]


def _chance(change: Change) -> float:
    """Two-sided p-value of no change."""
    error = _error(change.ratio)
    distance = abs(math.log(change.ratio.value))
    return float(2 * ndtr(-distance / error)) if error else float(distance == 0)


def order_of(change: Change) -> tuple[int, float]:
    """Regressions by size, then improvements by size, then the rest as it comes."""
    if not change.beyond_noise:
        return 2, 0.0
    size = abs(math.log(change.ratio.value))
    return (0 if change.worse else 1), -size
