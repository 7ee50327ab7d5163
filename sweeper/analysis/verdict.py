"""Who is measured again, and which config wins. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sweeper.analysis.intervals import LogEstimate, geometric_mean, pooled, scatter
from sweeper.records import ConfirmationRound, Interval, Load
from sweeper.speculation import SpeculationConfig
from sweeper.storage.stored_trial import Speedups


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


def confirmed_speedups(rounds: Sequence[ConfirmationRound]) -> dict[int, dict[Load, LogEstimate]]:
    """Speedups by trial and load over all rounds in which they were measured; nothing for a trial that failed in one.

    How much launches differ is estimated over all trials together, for each load.
    """
    failed = {trial for done in rounds for trial in done.failures}
    trials = {trial for done in rounds for trial in done.speedups} - failed
    found: dict[Load, dict[int, list[LogEstimate]]] = {}
    for done in rounds:
        for trial in sorted(trials & done.speedups.keys()):
            for name, values in done.speedups[trial].items():
                found.setdefault(Load.parse(name), {}).setdefault(trial, []).append(LogEstimate(*values))
    confirmed: dict[int, dict[Load, LogEstimate]] = {trial: {} for trial in trials}
    for load, by_trial in found.items():
        between = scatter(list(by_trial.values()))
        for trial, repeats in by_trial.items():
            confirmed[trial][load] = pooled(repeats, between)
    return confirmed


def left_open(rounds: Sequence[ConfirmationRound], trials: Collection[int], loads: Sequence[Load]) -> bool:
    """Whether one of the trials looks faster than no speculation after these rounds, and none surely is."""
    found = confirmed_speedups(rounds)
    intervals = [over_objective(found.get(trial, {}), loads) for trial in trials]
    known = [interval for interval in intervals if interval]
    return any(i.value > 1 for i in known) and not any(i.low > 1 for i in known)


def over_objective(speedups: Speedups | Mapping[Load, LogEstimate], loads: Sequence[Load]) -> Interval | None:
    """The geometric mean over the objective loads; None where one was not measured."""
    if not all(load in speedups for load in loads):
        return None
    return geometric_mean([speedups[load].interval for load in loads])
