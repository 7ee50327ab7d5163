"""How the cost of a verify round depends on a config: the break-even accept length ρ = τ_spec/τ_base at the load.

ρ = 1 + o + b·s·(1 + t·(k-1)) + v·(n-1) + p·(A-1): drafting with its overhead o, s draft steps (dearer with k branches),
n-1 further tokens to verify, and prefills, of which there are more per round the more tokens a round yields. All are
positive, so their logarithms are the parameters. It is the same for every checkpoint of a draft's architecture, and as
a multiple of the plain step's time it carries over between machines.
"""

from __future__ import annotations

import numpy as np

from sweeper.analysis.intervals import Array
from sweeper.search.curve_fit import Curve
from sweeper.search.rows import Rows


def log_cost(rows: Rows, theta: Array, log_accept_length: Array) -> Array:
    """ln ρ [rows]."""
    overhead, step, token, branch, prefill, bend = (np.exp(np.clip(theta[:, i], -20, 5)) for i in range(6))
    drafting = step * rows.steps * (1 + branch * (rows.topk - 1))
    verifying = token * (rows.tokens - 1) ** bend
    prefilling = prefill * np.expm1(np.maximum(log_accept_length, 0))
    cost: Array = np.log(1 + overhead + drafting + verifying + prefilling)
    return cost


COST_CURVE = Curve(
    formula=log_cost,
    start=np.log([0.15, 0.07, 0.02, 0.03, 0.03, 1.0]),
    shared=np.array([0.6, 0.5, 1.3, 0.8, 1.0, 0.3]),
    by_algorithm=np.array([0.4, 0.8, 0.2, 0.4, 0.1, 0.1]),
    by_draft=np.array([0.05, 0.15, 0.05, 0.05, 0.05, 0.02]),
    discrepancy=0.05,
    own=0.2,
    reach=np.array([1.5, 1.0, 1.5]),
    rough=0.4,
)
