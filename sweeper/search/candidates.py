"""Optuna samplers that propose only valid candidates, and each at most once.

The five parameters are ordinary Optuna parameters, so plots, importance and dashboard read naturally, but
their product contains configs that SGLang refuses or merges. Every sampler here therefore chooses from the
list of remaining candidates and returns the chosen one's parameters.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from optuna import Study
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial, TrialState

from sweeper.errors import SweeperError
from sweeper.space import Candidate
from sweeper.speculation import SpeculationConfig
from sweeper.study.newly_ended import NewlyEnded

REQUEUE = "requeue"
"""User attribute of failed trials that say nothing of their config (driver killed, node lost)."""


def parameters(config: SpeculationConfig, options: Iterable[str] = ()) -> dict[str, Any]:
    """A config as Optuna parameters; ``options`` are those of the whole space, None where it has none.

    They stand first, so that a trial that has all five others has them too.
    """
    return {
        **{name: config.option(name) for name in options},
        "algorithm": config.algorithm,
        "draft": config.draft,
        "num_steps": config.num_steps,
        "topk": config.topk,
        "num_draft_tokens": config.num_draft_tokens,
    }


NUMBERS = ("num_steps", "topk", "num_draft_tokens")
CORE = ("algorithm", "draft", *NUMBERS)


def config_from(params: Mapping[str, Any]) -> SpeculationConfig:
    """The config that Optuna parameters stand for."""
    options = {name: value for name, value in params.items() if name not in CORE and value is not None}
    core = {name: params[name] for name in CORE}
    return SpeculationConfig(**core, options=tuple(sorted(options.items())))


def option_names(candidates: Sequence[Candidate]) -> list[str]:
    """Names of all options that some candidate has."""
    return sorted({name for candidate in candidates for name, _ in candidate.effective.options})


def distributions(candidates: Sequence[Candidate]) -> dict[str, BaseDistribution]:
    """The smallest box that holds all candidates: categories, and integer ranges for the three numbers."""
    configs = [candidate.effective for candidate in candidates]

    def span(values: Iterable[int]) -> IntDistribution:
        numbers = list(values)
        return IntDistribution(min(numbers), max(numbers))

    return {
        **{
            name: CategoricalDistribution(sorted({c.option(name) for c in configs}, key=str))
            for name in option_names(candidates)
        },
        "algorithm": CategoricalDistribution(sorted({c.algorithm for c in configs})),
        "draft": CategoricalDistribution(sorted({c.draft for c in configs})),
        "num_steps": span(c.num_steps for c in configs),
        "topk": span(c.topk for c in configs),
        "num_draft_tokens": span(c.num_draft_tokens for c in configs),
    }


def params_of(trial: FrozenTrial) -> dict[str, Any]:
    """A trial's parameters, also while it waits in the queue and has only fixed ones."""
    return trial.params or trial.system_attrs.get("fixed_params", {})


def is_proposed(trial: FrozenTrial) -> bool:
    """Whether a trial has all its parameters; one that is just being asked for has not."""
    return all(name in params_of(trial) for name in CORE)


class Taken:
    """Configs that a study's trials were launched with, are running with or wait with."""

    def __init__(self) -> None:
        self.for_good: set[SpeculationConfig] = set()
        """Those of trials that ended and say something of them."""
        self._newly = NewlyEnded()

    def update(self, study: Study) -> list[SpeculationConfig]:
        """Look at the study again; returns what is new in ``for_good``."""
        new = [
            config_from(params_of(trial))
            for trial in self._newly(study.get_trials(deepcopy=False))
            if is_proposed(trial) and not (trial.state == TrialState.FAIL and trial.user_attrs.get(REQUEUE))
        ]
        self.for_good |= set(new)
        return new

    def by_open(self, besides: int | None = None) -> set[SpeculationConfig]:
        """Configs of trials that wait or run; those of other running trials than ``besides``.

        One that is ``besides`` may stand in the queue once more, and is then found when it comes out of it.
        """
        return {
            config_from(params_of(trial))
            for trial in self._newly.open
            if is_proposed(trial)
            if besides is None or (trial.number != besides and trial.state != TrialState.WAITING)
        }


class CandidateSampler(BaseSampler):
    """Picks among the candidates that no trial has taken; subclasses say which in ``choose``."""

    def __init__(self, candidates: Sequence[Candidate], seed: int = 0) -> None:
        self.candidates = list(candidates)
        self.options = option_names(candidates)
        self.space = distributions(candidates)
        self.skipped: dict[SpeculationConfig, str] = {}
        """Candidates that are known to fail, and why; the sweep keeps it up to date."""
        self.near: Mapping[SpeculationConfig, float] = {}
        """What the server that is asked for could measure without a launch, and which share of one that costs."""
        self.random = random.Random(seed)
        self._study: Study | None = None

    def reseed_rng(self) -> None:
        self.random.seed()

    def taken(self, study: Study) -> Taken:
        """What the study's trials have taken by now."""
        if study is not self._study:
            self._study, self._taken = study, Taken()
            self._left = {candidate.effective: candidate for candidate in self.candidates}
        for config in self._taken.update(study):
            self._left.pop(config, None)
        return self._taken

    def remaining(self, study: Study) -> list[Candidate]:
        """Candidates that were never proposed, in the order of the study file."""
        open_ones = self.taken(study).by_open()
        left = dict(self._left)
        for config in (*open_ones, *self.skipped):
            left.pop(config, None)
        return list(left.values())

    def offered(self, remaining: list[Candidate]) -> list[Candidate]:
        """Of ``remaining`` what to choose from; who knows no costs takes what is near first."""
        return [candidate for candidate in remaining if candidate.effective in self.near] or remaining

    def choose(self, study: Study, trial: FrozenTrial, remaining: list[Candidate]) -> Candidate:
        """One of ``remaining``, which is not empty."""
        raise NotImplementedError

    def enough(self, study: Study) -> bool:
        """Whether another launch is not worth its cost, though candidates remain."""
        return False

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self.space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if "fixed_params" in trial.system_attrs:
            return {}
        remaining = self.remaining(study)
        if not remaining:
            raise SweeperError("every candidate was launched; nothing is left to propose")
        return parameters(self.choose(study, trial, self.offered(remaining)).effective, self.options)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise SweeperError(f"parameter {param_name!r} is not part of the sweep's space")


class GridCandidates(CandidateSampler):
    """In the order of the study file."""

    def choose(self, study: Study, trial: FrozenTrial, remaining: list[Candidate]) -> Candidate:
        return remaining[0]


class RandomCandidates(CandidateSampler):
    """Uniformly."""

    def choose(self, study: Study, trial: FrozenTrial, remaining: list[Candidate]) -> Candidate:
        return self.random.choice(remaining)
