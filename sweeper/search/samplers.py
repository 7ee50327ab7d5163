"""The samplers that a study file can ask for: by name, with Optuna's own moved onto the list of candidates."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Sequence
from typing import Any

from optuna import Study
from optuna.samplers import BaseSampler, GPSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState

from sweeper.config import Search
from sweeper.errors import SweeperError
from sweeper.records import Load
from sweeper.search.candidates import NUMBERS, CandidateSampler, GridCandidates, RandomCandidates, parameters
from sweeper.space import Candidate

TPE_PROPOSALS = 8
"""How often TPE, whose draws are cheap and differ, may propose before one is moved to the nearest candidate.

GP proposes the maximum of its acquisition function, the same each time, and takes seconds: it is asked once.
"""


class ModelCandidates(CandidateSampler):
    """Optuna's own model-based sampler over the box, moved to the nearest remaining candidate.

    While the inner sampler has too few results to model anything it proposes nothing, and the choice is
    uniform.
    """

    def __init__(
        self, inner: BaseSampler, candidates: Sequence[Candidate], seed: int = 0, proposals: int = 1
    ) -> None:
        super().__init__(candidates, seed)
        self.inner = inner
        self.proposals = proposals

    def reseed_rng(self) -> None:
        super().reseed_rng()
        self.inner.reseed_rng()

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        self.inner.before_trial(study, trial)

    def after_trial(
        self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None
    ) -> None:
        self.inner.after_trial(study, trial, state, values)

    def choose(self, study: Study, trial: FrozenTrial, remaining: list[Candidate]) -> Candidate:
        by_parameters = {tuple(parameters(c.effective, self.options).values()): c for c in remaining}
        proposal: dict[str, Any] = {}
        varied = {name: d for name, d in self.space.items() if not d.single()}
        constant = parameters(remaining[0].effective, self.options)
        for _ in range(self.proposals):
            proposal = self.inner.sample_relative(study, trial, varied)
            if not proposal:
                return self.random.choice(remaining)
            proposal = {name: proposal.get(name, constant[name]) for name in self.space}
            if tuple(proposal.values()) in by_parameters:
                return by_parameters[tuple(proposal.values())]
        return min(remaining, key=lambda c: _distance(proposal, parameters(c.effective, self.options)))


def _distance(a: dict[str, Any], b: dict[str, Any]) -> float:
    """1 per differing category, doublings apart for the numbers."""
    total = 0.0
    for name, value in a.items():
        if name not in NUMBERS:
            total += value != b[name]
        else:
            total += abs(math.log2((value + 1) / (b[name] + 1)))
    return total


def _tpe(search: Search, candidates: Sequence[Candidate]) -> CandidateSampler:
    startup = max(3, min(10, len(candidates) // 4))
    inner = TPESampler(
        seed=search.seed,
        n_startup_trials=startup,
        multivariate=True,
        constant_liar=True,
    )
    return ModelCandidates(inner, candidates, search.seed, TPE_PROPOSALS)


def _gp(search: Search, candidates: Sequence[Candidate]) -> CandidateSampler:
    missing = [name for name in ("scipy", "torch") if importlib.util.find_spec(name) is None]
    if missing:
        raise SweeperError(
            f"search.sampler: gp needs {' and '.join(missing)}; pip install 'sweeper[gp]', "
            "or choose tpe, random or grid"
        )
    startup = max(3, min(10, len(candidates) // 4))
    inner = GPSampler(seed=search.seed, n_startup_trials=startup)
    return ModelCandidates(inner, candidates, search.seed)


def _structural(search: Search, candidates: Sequence[Candidate], loads: Sequence[Load]) -> CandidateSampler:
    from sweeper.search.structural import StructuralSampler

    return StructuralSampler(candidates, loads, search.seed, search.min_expected_gain)


SAMPLERS: dict[str, Callable[[Search, Sequence[Candidate], Sequence[Load]], CandidateSampler]] = {
    "structural": _structural,
    "grid": lambda search, candidates, loads: GridCandidates(candidates, search.seed),
    "random": lambda search, candidates, loads: RandomCandidates(candidates, search.seed),
    "tpe": lambda search, candidates, loads: _tpe(search, candidates),
    "gp": lambda search, candidates, loads: _gp(search, candidates),
}


def make_sampler(
    search: Search, candidates: Sequence[Candidate], loads: Sequence[Load] = ()
) -> CandidateSampler:
    """The sampler a study file asks for; ``loads`` are those to win at.

    Raises:
        SweeperError: it needs a package that is not installed.
    """
    return SAMPLERS[search.sampler](search, candidates, loads)
