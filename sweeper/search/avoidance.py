"""How likely a candidate runs at all, from those that ran and those that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from sweeper.analysis.intervals import Array
from sweeper.records import FailureClass
from sweeper.speculation import SpeculationConfig

OF_SIZE = frozenset({FailureClass.OOM_STATIC, FailureClass.OOM_RUNTIME, FailureClass.GRAPH_CAPTURE})
"""Failures of configs that are too large: larger ones fail, too."""
REACH = 0.7
"""Doublings of a number after which a config says little of another one."""
OTHER_DRAFT = 0.5
TRUST = 0.3
"""What speaks for a candidate of which nothing is known, as the weight of a success right beside it."""


@dataclass(frozen=True)
class Fault:
    """A config that failed by its own fault, and how."""

    config: SpeculationConfig
    kind: FailureClass


def chance_to_run(
    candidates: Sequence[SpeculationConfig], ran: Sequence[SpeculationConfig], failed: Sequence[Fault]
) -> Array:
    """Probability [candidates] that each one runs: the weighted share of neighbours that did.

    A neighbour has the same algorithm; another draft counts less. A candidate that is nowhere smaller than one that ran
    out of memory counts as right beside it.
    """
    if not failed:
        return np.ones(len(candidates))
    ours, theirs = _Places(candidates), _Places([fault.config for fault in failed])
    near = ours.nearness(theirs)
    of_size = np.array([fault.kind in OF_SIZE for fault in failed])
    larger = (ours.size[:, None, :] >= theirs.size[None, :, :]).all(axis=2)
    sure = larger & of_size & (ours.algorithm[:, None] == theirs.algorithm[None, :])
    against = np.where(sure, 10 * TRUST, near).sum(axis=1)
    for_it = TRUST + ours.nearness(_Places(ran)).sum(axis=1)
    chance: Array = for_it / (for_it + against)
    return chance


class _Places:
    """Configs as arrays: ``size`` [configs, 3] in draft steps, topk and draft tokens; names of algorithm and draft."""

    def __init__(self, configs: Sequence[SpeculationConfig]) -> None:
        numbers = [(c.num_steps, c.topk, c.num_draft_tokens) for c in configs]
        self.size = np.maximum(np.array(numbers, float).reshape(len(configs), 3), 1)
        self.algorithm, self.draft = (
            np.array([getattr(c, name) for c in configs], str) for name in ("algorithm", "draft")
        )

    def nearness(self, others: _Places) -> Array:
        """1 for the same place, 0 for another algorithm [configs, others]."""
        squares = cdist(np.log2(self.size), np.log2(others.size), "sqeuclidean") if len(others.size) else 0.0
        same = self.algorithm[:, None] == others.algorithm[None, :]
        draft = np.where(self.draft[:, None] == others.draft[None, :], 1.0, OTHER_DRAFT)
        near: Array = np.exp(-0.5 * squares / REACH**2) * draft * same
        return near
