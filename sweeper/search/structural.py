"""Search with a model of speculation instead of a black box.

At a load, tok/s = concurrency · A/τ. The accept length A follows from few numbers per draft, and one deep chain's
histogram shows them; the step time τ follows from few numbers per load, the same for all checkpoints of a draft. So a
handful of launches predicts every candidate, with its uncertainty (``SpeedModel``), and the one with the largest
expected gain over the best known is launched next.

What it proposes depends on the seed, on the stored trials, and on what a running server could measure without a launch,
which costs less: without such servers, a resumed study goes on as it would have.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from optuna import Study
from optuna.trial import FrozenTrial

from sweeper.analysis.intervals import Array
from sweeper.records import Load
from sweeper.search.avoidance import chance_to_run
from sweeper.search.candidates import CandidateSampler
from sweeper.search.evidence import Evidence, EvidenceReader, telling
from sweeper.search.gain import expected_gain, probability_near_best
from sweeper.search.hints import NOTHING, Hints
from sweeper.search.outcome import LEAST_ERROR, Outcome
from sweeper.search.prospect import Prospect
from sweeper.search.rows import Table
from sweeper.search.speed_model import SpeedModel, is_chain
from sweeper.search.trust import believable
from sweeper.space import Candidate
from sweeper.speculation import SpeculationConfig

USEFUL = 0.9
"""The first launch is the longest chain that is expected to reach this share of the best chain's speedup."""
MODELS = 3
RIVALS = 128
"""Candidates that the probability of being near the best is computed against: the most promising ones."""


class StructuralSampler(CandidateSampler):
    """Proposes the candidate with the largest expected gain at ``loads``.

    It has ``enough`` once that is below ``min_expected_gain`` and was so before the last result came in, too: one
    result may make a model too sure of itself.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        loads: Sequence[Load],
        seed: int = 0,
        min_expected_gain: float = 0.0,
    ) -> None:
        super().__init__(candidates, seed)
        self.loads, self.min_expected_gain = tuple(loads), min_expected_gain
        self.hints = NOTHING
        """What is known beforehand."""
        self.configs = [candidate.effective for candidate in candidates]
        self._table = Table(self.configs)
        self._index = {config: i for i, config in enumerate(self.configs)}
        self._turn = list(range(len(self.configs)))
        random.Random(seed).shuffle(self._turn)
        self.evidence = EvidenceReader(self.loads)
        self._answer: tuple[Evidence, bool] | None = None
        self._models: dict[tuple[Hints, tuple[Outcome, ...]], SpeedModel] = {}

    def reseed_rng(self) -> None:
        """Ties go to another candidate from now on; nothing else is random."""
        super().reseed_rng()
        random.shuffle(self._turn)

    def choose(self, study: Study, trial: FrozenTrial, remaining: list[Candidate]) -> Candidate:
        evidence = self.evidence.read(study, besides=trial.number)
        left = [self._index[candidate.effective] for candidate in remaining]
        if not evidence.outcomes and not evidence.running and not evidence.faults:
            return self.candidates[self._opening(left)]
        model, seen = self._believing(evidence)
        scores = self._scores(model, seen, evidence)
        for config, share in self.near.items():
            scores[self._index[config]] /= share
        return self.candidates[max(left, key=lambda i: (scores[i], self._turn[i]))]

    def offered(self, remaining: list[Candidate]) -> list[Candidate]:
        return remaining

    def enough(self, study: Study) -> bool:
        if not self.min_expected_gain:
            return False
        evidence = replace(self.evidence.read(study), running=())
        if self._answer is None or self._answer[0] != evidence:
            self._answer = evidence, self._gains_little(evidence, self._open(study))
        return self._answer[1]

    def _gains_little(self, evidence: Evidence, left: list[int]) -> bool:
        before = replace(evidence, outcomes=evidence.outcomes[:-1])
        return all(e.outcomes and self._gain(e, left) < self.min_expected_gain for e in (evidence, before))

    def _gain(self, evidence: Evidence, left: list[int]) -> float:
        """The largest expected gain of the launches that are left."""
        model = self.model(evidence.outcomes)
        scores = self._scores(model, [o.config for o in evidence.outcomes], evidence)
        return float(max(scores[left], default=0.0))

    def _open(self, study: Study) -> list[int]:
        return [self._index[candidate.effective] for candidate in self.remaining(study)]

    def model(self, outcomes: Sequence[Outcome]) -> SpeedModel:
        """By the most telling of the outcomes; the last few models are kept, since each is asked for several times."""
        key = self.hints, tuple(telling(outcomes))
        if key not in self._models:
            while len(self._models) >= MODELS:
                self._models.pop(next(iter(self._models)))
            self._models[key] = SpeedModel(self._table, key[1], believable(*key))
        return self._models[key]

    def prospect(self, study: Study) -> Prospect:
        """From the finished trials alone: what runs now may still surprise."""
        evidence = self.evidence.read(study)
        model = self.model(evidence.outcomes)
        known = {
            o.config: model.mean[self._index[o.config]] for o in evidence.outcomes if o.config in self._index
        }
        best = max(known, key=lambda config: known[config], default=None)
        if best is not None and known[best] <= 0:
            best = None
        gain = self._gain(evidence, self._open(study))
        launches = len(evidence.outcomes) + len(evidence.faults)
        return Prospect(
            gain, best, self._near_best(model, best), launches, len(self.configs), self.enough(study)
        )

    def _opening(self, left: list[int]) -> int:
        """The longest useful chain: its histogram tells most of the others."""
        mean = self.model(()).mean
        chains = [i for i in left if is_chain(self.configs[i])]
        if not chains:
            return max(left, key=lambda i: (mean[i], self._turn[i]))
        least = max(mean[i] for i in chains) + np.log(USEFUL)
        return max(
            (i for i in chains if mean[i] >= least),
            key=lambda i: (self.configs[i].num_steps, mean[i], self._turn[i]),
        )

    def _believing(self, evidence: Evidence) -> tuple[SpeedModel, list[SpeculationConfig]]:
        """The model as if what runs had come out as expected (kriging believer, Ginsbourger et al. 2010)."""
        model = self.model(evidence.outcomes)
        running = [config for config in evidence.running if config in self._index]
        seen = [o.config for o in evidence.outcomes]
        if not running:
            return model, seen
        beliefs = [self._belief(model, config) for config in running]
        believing = SpeedModel(self._table, (*model.outcomes, *beliefs), model.hints)
        return believing, [*seen, *running]

    def _belief(self, model: SpeedModel, config: SpeculationConfig) -> Outcome:
        i = self._index[config]
        return Outcome(config, float(model.log_length[i]), LEAST_ERROR, float(model.mean[i]), 2 * LEAST_ERROR)

    def _scores(self, model: SpeedModel, seen: Sequence[SpeculationConfig], evidence: Evidence) -> Array:
        """Expected gain [candidates] over the best of ``seen`` and over no speculation, if they run at all."""
        there = [model.mean[self._index[config]] for config in seen if config in self._index]
        gain = expected_gain(model.mean, model.variance, max([0.0, *there]))
        ran = [o.config for o in evidence.outcomes]
        return gain * chance_to_run(self.configs, ran, evidence.faults)

    def _near_best(self, model: SpeedModel, best: SpeculationConfig | None) -> float:
        hopes = model.mean + 2 * np.sqrt(model.variance)
        own = None if best is None else self._index[best]
        rivals = [int(i) for i in np.argsort(-hopes)[:RIVALS] if i != own]
        chosen = [*([] if own is None else [own]), *rivals]
        covariance = sum(model.covariances(chosen))
        return probability_near_best(model.mean[chosen], np.asarray(covariance), None if own is None else 0)
