"""The best config per load, and the single config that loses least where it is not the best one. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeper.analysis.verdict import Contender, winner
from sweeper.records import Interval
from sweeper.speculation import NO_SPECULATION, SpeculationConfig

PLAIN = Interval(1.0, 1.0, 1.0)
"""The speedup of no speculation over itself."""


@dataclass(frozen=True)
class Curve:
    """A trial's speedups by load's name."""

    number: int
    config: SpeculationConfig
    speedups: Mapping[str, Interval]


@dataclass(frozen=True)
class SingleBest:
    """One config for all loads; ``number`` None: no speculation.

    ``regrets`` by load: the share of the best speed there that is given up.
    """

    number: int | None
    config: str
    regrets: Mapping[str, float]

    @property
    def worst(self) -> float:
        return max(self.regrets.values())


def best_at(load: str, curves: Sequence[Curve], tie: float) -> Contender | None:
    """Who wins at a load, by the verdict's own rule; None: nothing surely beats no speculation."""
    return winner(
        [
            Contender(curve.number, curve.config, curve.speedups[load])
            for curve in curves
            if load in curve.speedups
        ],
        tie,
    )


def single_best(curves: Sequence[Curve], loads: Sequence[str], tie: float) -> SingleBest | None:
    """The config, or no speculation, whose largest regret over the loads is smallest; then the fastest on average.

    Only configs that were measured at every load, and surely pay at one, can be it. None where there are no loads.
    """
    if not loads:
        return None
    winners = {load: best_at(load, curves, tie) for load in loads}
    best = {load: found.speedup.value if found else 1.0 for load, found in winners.items()}
    plain = Curve(-1, NO_SPECULATION, dict.fromkeys(loads, PLAIN))
    everywhere = [plain, *(curve for curve in curves if _eligible(curve, loads))]

    def regrets(curve: Curve) -> dict[str, float]:
        return {load: max(0.0, 1 - curve.speedups[load].value / best[load]) for load in loads}

    def order(curve: Curve) -> tuple[float, float]:
        average = sum(math.log(curve.speedups[load].value) for load in loads)
        return round(max(regrets(curve).values()), 6), -average

    chosen = min(everywhere, key=order)
    return SingleBest(None if chosen is plain else chosen.number, str(chosen.config), regrets(chosen))


def _eligible(curve: Curve, loads: Sequence[str]) -> bool:
    found = [curve.speedups[load] for load in loads if load in curve.speedups]
    return len(found) == len(loads) and any(speedup.low > 1 for speedup in found)
