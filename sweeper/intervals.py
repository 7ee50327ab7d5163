"""95 % bootstrap confidence intervals of ratios over requests. Pure functions; the same data give the same interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sweeper.records import Interval, RequestRecord

RESAMPLES = 2000
SEED = 20_250


def bootstrap(count: int, resamples: int = RESAMPLES) -> NDArray[np.int64]:
    """Indices [resamples, count] that draw ``count`` items with replacement."""
    return np.random.default_rng(SEED).integers(0, count, (resamples, count))


def ratio_interval(numerators: ArrayLike, denominators: ArrayLike) -> Interval:
    """Σnumerators/Σdenominators with its interval; both [requests], drawn together."""
    top, bottom = np.asarray(numerators, float), np.asarray(denominators, float)
    draw = bootstrap(len(top))
    ratios = top[draw].sum(1) / bottom[draw].sum(1)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return Interval(float(top.sum() / bottom.sum()), float(low), float(high))


def paired_ratio(
    ours: Sequence[RequestRecord], theirs: Sequence[RequestRecord]
) -> tuple[float, float, float]:
    """Rate per slot of ``ours`` over that of ``theirs``: (value, low, high), resampled by shared prompt.

    Raises:
        ValueError: the two have no prompt in common.
    """
    base = {r.prompt: r for r in theirs if not r.error}
    pairs = [(r, base[r.prompt]) for r in ours if not r.error and r.prompt in base]
    if not pairs:
        raise ValueError("no prompt in common")
    table = np.array([(a.completion_tokens, a.e2e_s, b.completion_tokens, b.e2e_s) for a, b in pairs])

    def ratio(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        value: NDArray[np.float64] = (sums[..., 0] / sums[..., 1]) / (sums[..., 2] / sums[..., 3])
        return value

    resampled = ratio(table[bootstrap(len(pairs))].sum(1))
    low, high = np.quantile(resampled, (0.025, 0.975))
    return float(ratio(table.sum(0))), float(low), float(high)
