"""How far hints are believed, once the study's own launches can be compared with them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sweeper.analysis.intervals import Array
from sweeper.search.hints import NOTHING, Hints
from sweeper.search.outcome import Outcome
from sweeper.search.rows import Indices, Table
from sweeper.search.speed_model import SpeedModel

SURPRISED = 4.0
"""Mean squared deviation of one draft's launches, in standard deviations, from which on hints are wrong."""
DOUBTS = (1.0, 3.0, 10.0)
"""Multiples of the hints' errors; beyond the last they are dropped."""


def believable(hints: Hints, outcomes: Sequence[Outcome]) -> Hints:
    """The hints with errors so wide that what was launched is no surprise under them.

    Accept lengths and costs are judged on their own: a draft's map may be wrong where its costs are right.
    """
    if hints == NOTHING or not outcomes:
        return hints
    lengths = next((d for d in DOUBTS if _surprise(hints.doubted(d, 1.0), outcomes)[0] < SURPRISED), None)
    costs = next((d for d in DOUBTS if _surprise(hints.doubted(1.0, d), outcomes)[1] < SURPRISED), None)
    kept = hints.doubted(lengths or 1.0, costs or 1.0)
    return Hints(kept.accept_length if lengths else (), kept.cost if costs else ())


def _surprise(hints: Hints, outcomes: Sequence[Outcome]) -> tuple[float, float]:
    """Of ln A and of ln ρ: how far the launches are from what the hints alone make of them."""
    model = SpeedModel(Table([known.config for known in outcomes]), (), hints)
    lengths = np.array([known.log_accept_length for known in outcomes])
    costs = np.array([known.log_cost for known in outcomes])
    length_error = model.accept.variance(model.rows, lengths) + np.array(
        [k.accept_error**2 for k in outcomes]
    )
    cost_error = model.cost.variance(model.rows, lengths) + np.array([k.speedup_error**2 for k in outcomes])
    own_cost = model.cost.mean(model.rows, lengths)
    drafts = model.rows.group
    return (
        _squares((lengths - model.log_length) ** 2 / length_error, drafts),
        _squares((costs - own_cost) ** 2 / cost_error, drafts),
    )


def _squares(deviations: Array, drafts: Indices) -> float:
    """The largest mean of a draft: one whose hints are wrong must not hide behind the others."""
    return max(float(np.mean(deviations[drafts == draft])) for draft in np.unique(drafts))
