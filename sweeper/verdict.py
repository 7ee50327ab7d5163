"""Who is measured again, and which config wins. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeper.intervals import LogEstimate, geometric_mean, pooled
from sweeper.records import ConfirmationRound, Interval, Load
from sweeper.speculation import SpeculationConfig
from sweeper.stored_trial import Speedups


@dataclass(frozen=True)
class Contender:
    """A config that may be deployed: ``speedup`` over no speculation, over the objective loads."""

    number: int
    config: SpeculationConfig
    speedup: Interval

    @property
    def cost(self) -> tuple[int, int, int]:
        """What makes a config dearer to serve at equal speed: draft steps, then the size of the tree."""
        return self.config.num_steps, self.config.num_draft_tokens, self.config.topk


def finalists(contenders: Sequence[Contender], count: int) -> list[Contender]:
    """The best by measured speedup that may beat no speculation at all, best first."""
    able = [c for c in contenders if c.speedup.high > 1 and c.speedup.value > 1]
    return sorted(able, key=lambda c: -c.speedup.value)[:count]


def winner(contenders: Sequence[Contender], tie: float) -> Contender | None:
    """The fastest config whose whole interval lies above 1.0; within ``tie`` of it, the cheapest one."""
    sure = [c for c in contenders if c.speedup.low > 1]
    if not sure:
        return None
    best = max(c.speedup.value for c in sure)
    return min(
        (c for c in sure if c.speedup.value >= best * (1 - tie)), key=lambda c: (c.cost, -c.speedup.value)
    )


def confirmed_speedups(rounds: Sequence[ConfirmationRound], trial: int) -> dict[Load, LogEstimate]:
    """A trial's speedups over all rounds of confirmation, where every round has one."""
    found = [done.speedups.get(trial, {}) for done in rounds]
    shared = set(found[0]).intersection(*found[1:]) if found else set()
    return {
        Load.parse(name): pooled([LogEstimate(*speedups[name]) for speedups in found])
        for name in sorted(shared)
    }


def over_objective(speedups: Speedups | Mapping[Load, LogEstimate], loads: Sequence[Load]) -> Interval | None:
    """The geometric mean over the objective loads; None where one was not measured."""
    if not all(load in speedups for load in loads):
        return None
    return geometric_mean([speedups[load].interval for load in loads])
