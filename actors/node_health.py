"""Which nodes spoil trials: they get no more of them after a few in a row, and none that another one may cure."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection

from sweeper.records import TrialResult
from sweeper.server.failures import ADVICE, Remedy

PROBATION_S = 600.0
"""A node that spoiled a trial waits at most so long for another one to take it up."""

NOT_THE_CONFIG = (Remedy.ELSEWHERE, Remedy.NEW_PORTS)


def spoiled(result: TrialResult) -> bool:
    """Whether a trial ended as it did because of its node, as far as anyone can tell.

    The plain server has come through elsewhere, or the study would have ended.
    """
    failure = result.record.failure
    if failure is None:
        return bool(result.leak)
    not_the_config = ADVICE[failure.kind].remedy in NOT_THE_CONFIG or not result.record.effective.speculates
    return bool(result.leak) or not_the_config


class NodeHealth:
    """Counts by Ray's node id. A trial that came through clears its nodes; one that its config spoiled says nothing."""

    def __init__(self, limit: int) -> None:
        self.cordoned: dict[str, str] = {}
        """Why, by node."""
        self._limit = limit
        self._in_a_row: Counter[str] = Counter()
        self._probation: dict[str, float] = {}

    def ended(self, nodes: Collection[str], result: TrialResult) -> list[str]:
        """Note a trial's end; returns the nodes that are to be cordoned."""
        if not spoiled(result):
            if result.record.failure is None:
                for node in nodes:
                    self._in_a_row.pop(node, None)
                    self._probation.pop(node, None)
            return []
        self._in_a_row.update(nodes)
        self._probation.update(dict.fromkeys(nodes, time.monotonic()))
        return [n for n in nodes if self._in_a_row[n] >= self._limit and n not in self.cordoned]

    def on_probation(self, nodes: Collection[str]) -> bool:
        """Whether the next trial, most likely the retry of the one they spoiled, should go elsewhere."""
        since = [self._probation[node] for node in nodes if node in self._probation]
        return bool(since) and time.monotonic() - max(since) < PROBATION_S

    def went_elsewhere(self) -> None:
        """A trial began on a node that spoiled none: the longest on probation is free again."""
        if self._probation:
            del self._probation[min(self._probation, key=lambda node: self._probation[node])]
