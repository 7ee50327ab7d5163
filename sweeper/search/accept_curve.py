"""How accept length depends on a config: prior knowledge, and what one launch tells of other configs.

Position i of a chain is accepted, given that the one before was, with probability q_i = logistic(α + β·ln i):
A = 1 + Σ_i Π_{j≤i} q_j. A tree is right at a position more often than a chain: by its shape
(``sweeper.search.tree_shape``) W_i/W_{i-1} times as often, which adds γ·ln(W_i/W_{i-1}) to the logit. α and β are a
draft's own, γ mostly common.

The prior's centre (α 0.8: 69 % at the first position; β -0.1) and width hold everything in published tables, from an
untrained draft's 0.34 to 0.83.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from sweeper.acceptance import marginal_acceptance
from sweeper.analysis.intervals import Array
from sweeper.search.curve_fit import Curve
from sweeper.search.rows import Rows

TRUNCATION_BIAS = 0.035
"""Log of the accept length of a short chain over what a much longer one's histogram promises (it visits other
positions); measured at 1.5 to 5.2 % on the CPU test bed, by a decoder outside SGLang."""
TRUNCATION_ERROR = 0.02


def log_accept_length(rows: Rows, theta: Array, _: Array) -> Array:
    """ln A [rows]."""
    level, slope, branches = (theta[:, i, None] for i in range(3))
    position = np.arange(1, rows.gain.shape[1] + 1)
    logit = level + slope * np.log(position) + branches * rows.gain
    conditional = 1 / (1 + np.exp(-np.clip(logit, -30, 30)))
    there = position <= rows.depth[:, None]
    length: Array = np.log1p((np.cumprod(conditional, axis=1) * there).sum(axis=1))
    return length


ACCEPT_CURVE = Curve(
    formula=log_accept_length,
    start=np.array([0.8, -0.1, 3.0]),
    shared=np.array([0.4, 0.15, 1.0]),
    by_algorithm=np.array([0.3, 0.15, 0.5]),
    by_draft=np.array([0.8, 0.3, 0.5]),
    discrepancy=0.04,
    own=0.5,
    reach=np.array([1.5, 1.0, 1.5]),
    rough=0.2,
)


def truncations(histogram: Sequence[int]) -> list[tuple[int, float, float]]:
    """What a chain's histogram says of shorter chains: (steps, ln A, its standard deviation)."""
    marginal = marginal_acceptance(histogram)
    lengths = list(accumulate(marginal, initial=1.0))
    found = []
    for steps in range(1, len(marginal)):
        cut = 1 - steps / len(marginal)
        value = float(np.log(lengths[steps])) + TRUNCATION_BIAS * cut**0.5
        found.append((steps, value, TRUNCATION_ERROR * cut**0.5 + 0.003))
    return found
