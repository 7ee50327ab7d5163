"""Which trials can use a server that already runs: those whose draft is a sibling of the one in it.

A launch of a large target takes minutes, loading a draft's weights seconds. So a server that has measured one
checkpoint stays up while siblings of it, under the same numbers, are still to be measured, and the sampler knows that
these cost less. Swapping is proven once for each family of drafts: its first swapped trial is launched as well, which
the sampler does not count as a cost, since all later ones owe to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sweeper.records import OutputComparison, TrialRecord
from sweeper.server.hot_swap import ALGORITHM, can_swap
from sweeper.space import Candidate
from sweeper.speculation import NO_DRAFT, SpeculationConfig
from sweeper.trial.order import LAUNCH, HotSwapOrder, TrialPlan

LEAST = 3
"""Launches that swaps must be able to save before the proof, which costs one, is worth its while."""

UNKNOWN_SHARE = 0.5
"""What a swapped trial costs of a launched one, while no trial has told."""


@dataclass(frozen=True)
class _Class:
    """What candidates have in common that one launch could measure: a family of drafts, and the same numbers."""

    family: str
    numbers: SpeculationConfig


@dataclass
class _Mean:
    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total, self.count = self.total + value, self.count + 1

    @property
    def value(self) -> float | None:
        return self.total / self.count if self.count else None


class HotSwaps:
    """Keeps track of servers with weights in them, and of whether swaps are to be believed.

    ``ordered``: the sampler weighs costs, or the whole space is measured in any case, so that the order is free.
    """

    def __init__(self, plan: TrialPlan, candidates: Sequence[Candidate], ordered: bool) -> None:
        able = plan.study.search.hot_swap == "auto" and ordered and can_swap(plan.study, plan.setup)
        self._families = {
            r.draft: r.family for r in plan.preflight if able and r.algorithm == ALGORITHM and r.family
        }
        self._classes = {c.effective: group for c in candidates if (group := self._class(c.effective))}
        self._running: dict[str, SpeculationConfig] = {}
        self._worth: set[str] = set()
        self._proven: set[str] = set()
        self._failed: set[str] = set()
        self._launched_s, self._swapped_s = _Mean(), _Mean()

    def _class(self, config: SpeculationConfig) -> _Class | None:
        family = self._families.get(config.draft)
        if not family or config.algorithm != ALGORITHM or config.option("adaptive"):
            return None
        return _Class(family, replace(config, draft=NO_DRAFT))

    def expect(self, left: Iterable[SpeculationConfig], launches: int) -> None:
        """So much is left to measure, with at most so many launches: families that it pays to prove swaps for."""
        sizes = Counter(self._classes[config] for config in left if config in self._classes)
        saved = Counter[str]()
        for group, size in sizes.items():
            saved[group.family] += size - 1
        self._worth = {family for family, count in saved.items() if min(count, launches // 2) >= LEAST}

    def saw(self, record: TrialRecord) -> str:
        """Learn from an ended trial; what a person should know of it, or nothing."""
        swap, family = record.hot_swap, self._families.get(record.effective.draft)
        if record.measure_s:
            spent = self._launched_s if record.launched else self._swapped_s
            spent.add(record.start_s + record.measure_s)
        if swap is None or family is None:
            return ""
        if swap.believed:
            self._proven.add(family)
            return ""
        self._failed.add(family)
        return f"{record.effective} was {swap}; from now on every checkpoint like it is launched"

    def ended(self, server: str, config: SpeculationConfig, kept: bool) -> None:
        """A trial is over on a server, which was kept running or not."""
        if kept and config in self._classes:
            self._running[server] = config
        else:
            self._running.pop(server, None)

    def near(
        self, server: str, left: Callable[[], Iterable[SpeculationConfig]]
    ) -> dict[SpeculationConfig, float]:
        """What is left to measure that a server could take without a launch, and which share of one that costs."""
        there = self._running.get(server)
        if there is None or self._classes[there].family in self._failed:
            return {}
        launched, swapped = self._launched_s.value, self._swapped_s.value
        share = min(1.0, swapped / launched) if launched and swapped else UNKNOWN_SHARE
        return {config: share for config in left() if self._siblings(config, there)}

    def _siblings(self, config: SpeculationConfig, there: SpeculationConfig | None) -> bool:
        """Whether a server that runs ``there`` can take ``config``'s weights: others than its own."""
        group = self._classes.get(config)
        return (
            there is not None and config != there and group is not None and group == self._classes.get(there)
        )

    def order(
        self,
        config: SpeculationConfig,
        server: str,
        left: Callable[[], Iterable[SpeculationConfig]],
        floor: OutputComparison | None,
    ) -> HotSwapOrder:
        """How to run a trial on a server, with ``left`` still to be measured after it."""
        group = self._classes.get(config)
        if group is None or group.family in self._failed or group.family not in self._worth | self._proven:
            return LAUNCH
        keep = any(self._classes.get(other) == group for other in left())
        take = self._siblings(config, self._running.get(server))
        return HotSwapOrder(take, take and group.family not in self._proven, keep, floor)
