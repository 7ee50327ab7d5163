"""Configs as arrays, for the models of the structural sampler."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweeper.analysis.intervals import Array
from sweeper.search.tree_shape import reach
from sweeper.speculation import SpeculationConfig

BLOCK_DRAFTERS = frozenset({"NGRAM", "DFLASH", "DSPARK", "UNO"})
"""Algorithms that draft all positions at once: their depth is the number of drafts, not of draft steps."""

FLAT_GAIN = 0.1
"""What a doubling of an NGRAM trie's breadth adds to ``gain``."""

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Configs [rows]: the draft steps, ``topk``, ``num_draft_tokens``, how deep and how wide they draft.

    ``depth``: positions that a verify round can accept. ``width``: verified drafts per such position; 1 for a chain.
    ``gain`` [rows, positions]: log of how much likelier than in a chain each position is, given the one before.
    ``group``: rows of one draft, algorithm and choice of options have one number, which ``Names`` gives out.
    """

    algorithm: Indices
    group: Indices
    steps: Array
    topk: Array
    tokens: Array
    depth: Array
    width: Array
    gain: Array

    def __len__(self) -> int:
        return len(self.group)

    def __getitem__(self, index: Indices | slice | list[int]) -> Rows:
        return Rows(*(getattr(self, name)[index] for name in self.__dataclass_fields__))

    @cached_property
    def place(self) -> Array:
        """Where a row lies among the others [rows, 3], in doublings: depth, width, branches."""
        return np.stack([np.log2(self.depth), np.log2(self.width), np.log2(self.topk)], axis=1)


class Table:
    """Configs whose rows are made once; further configs share the numbers of their algorithms and groups."""

    def __init__(self, configs: Sequence[SpeculationConfig]) -> None:
        self.names = Names()
        self.rows = self.names.rows(configs)


class Names:
    """Numbers for algorithms and groups, in the order in which they are met."""

    def __init__(self) -> None:
        self.algorithms: dict[str, int] = {}
        self.groups: dict[tuple[object, ...], int] = {}

    def rows(self, configs: Sequence[SpeculationConfig]) -> Rows:
        found = [self._row(config) for config in configs]
        algorithm, group = (np.array([row[i] for row in found], np.int64) for i in (0, 1))
        steps, topk, tokens, depth, width = (np.array([row[i] for row in found], float) for i in range(2, 7))
        gain = np.zeros((len(found), max((len(row[7]) for row in found), default=1)))
        for line, row in zip(gain, found, strict=True):
            line[: len(row[7])] = row[7]
        return Rows(algorithm, group, steps, topk, tokens, depth, width, gain)

    def _row(self, config: SpeculationConfig) -> tuple[Any, ...]:
        algorithm = self.algorithms.setdefault(config.algorithm, len(self.algorithms))
        key = (config.algorithm, config.draft, config.options)
        group = self.groups.setdefault(key, len(self.groups))
        drafts = max(config.num_draft_tokens - 1, 1)
        if config.algorithm in BLOCK_DRAFTERS:
            topk = max(config.topk, 1)
            depth, width = max(round(drafts / topk**0.5), 1), float(topk) ** 0.5
            gain = [FLAT_GAIN * math.log(topk)] * depth
            return algorithm, group, 0, topk, config.num_draft_tokens, depth, width, gain
        confidence = reach(max(config.num_steps, 1), max(config.topk, 1), max(config.num_draft_tokens, 2))
        gain = [math.log(b / a) for a, b in zip((1.0, *confidence), confidence, strict=False)]
        depth = len(confidence)
        width = max(1.0, drafts / depth)
        return algorithm, group, config.num_steps, config.topk, config.num_draft_tokens, depth, width, gain
