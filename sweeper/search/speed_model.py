"""What is known of every candidate's speedup at the objective loads: ln speedup = ln A - ln ρ, each a ``CurveFit``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from sweeper.analysis.intervals import Array
from sweeper.search.accept_curve import ACCEPT_CURVE, truncations
from sweeper.search.cost_curve import COST_CURVE
from sweeper.search.curve_fit import Observations, fit
from sweeper.search.hints import NOTHING, Hint, Hints
from sweeper.search.outcome import Outcome
from sweeper.search.rows import BLOCK_DRAFTERS, Names, Table
from sweeper.speculation import SpeculationConfig

TRUNCATED_DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16)
"""Chains whose accept length is read from a deeper one's histogram: enough for its shape."""


class SpeedModel:
    """The posterior over candidates, given outcomes."""

    def __init__(
        self,
        candidates: Table,
        outcomes: Sequence[Outcome],
        hints: Hints = NOTHING,
    ) -> None:
        self.outcomes, self.hints = tuple(outcomes), hints
        names, self.rows = candidates.names, candidates.rows
        lengths = [Hint(o.config, o.log_accept_length, o.accept_error) for o in outcomes]
        lengths += [*_shorter_chains(outcomes), *hints.accept_length]
        self.accept = fit(ACCEPT_CURVE, _observations(names, lengths))
        costs = [Hint(o.config, o.log_cost, o.speedup_error) for o in outcomes] + list(hints.cost)
        seen = _observations(names, costs)
        extra = self.accept.mean(seen.rows, seen.extra) if len(costs) else seen.extra
        self.cost = fit(COST_CURVE, Observations(seen.rows, seen.value, seen.error, extra))
        self.log_length = self.accept.mean(self.rows, np.zeros(len(self.rows)))
        self.mean: Array = self.log_length - self.cost.mean(self.rows, self.log_length)

    @cached_property
    def variance(self) -> Array:
        """Of ln speedup [candidates]."""
        of_length = self.accept.variance(self.rows, self.log_length)
        return of_length + self.cost.variance(self.rows, self.log_length)

    def covariances(self, chosen: list[int]) -> tuple[Array, Array]:
        """Of ln A and of ln ρ, each [chosen, chosen]; ln speedup's is their sum."""
        rows, lengths = self.rows[chosen], self.log_length[chosen]
        return self.accept.covariance(rows, lengths), self.cost.covariance(rows, lengths)


def _observations(names: Names, hints: Sequence[Hint]) -> Observations:
    rows = names.rows([hint.config for hint in hints])
    value, error = (np.array([getattr(hint, name) for hint in hints], float) for name in ("value", "error"))
    return Observations(rows, value, error, np.zeros(len(hints)))


def is_chain(config: SpeculationConfig) -> bool:
    return config.topk == 1 and config.algorithm not in BLOCK_DRAFTERS


def _shorter_chains(outcomes: Sequence[Outcome]) -> list[Hint]:
    """What the deepest chain of each draft says of the shorter ones that were not launched."""
    launched = {outcome.config for outcome in outcomes}
    deepest: dict[tuple[object, ...], Outcome] = {}
    for outcome in outcomes:
        config = outcome.config
        key = (config.algorithm, config.draft, config.options)
        if is_chain(config) and any(outcome.histogram):
            deepest[key] = max(deepest.get(key, outcome), outcome, key=lambda o: o.config.num_steps)
    hints = []
    for outcome in deepest.values():
        for steps, value, error in truncations(outcome.histogram):
            config = chain(outcome.config, steps)
            if steps in TRUNCATED_DEPTHS and config not in launched:
                hints.append(Hint(config, value, float(np.hypot(error, outcome.accept_error))))
    return hints


def chain(like: SpeculationConfig, steps: int) -> SpeculationConfig:
    """The chain of so many steps with the same draft."""
    return SpeculationConfig(like.algorithm, like.draft, steps, 1, steps + 1, like.options)
