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
from sweeper.search.gain import expected_gain, expected_gain_beside, probability_near_best
from sweeper.search.hints import NOTHING, Hints
from sweeper.search.outcome import Outcome
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
"""Candidates whose joint distribution is looked at: the most promising ones."""
UNSAMPLED = 1e-4
"""Share of its gain, as if nothing ran, that orders what no sample shows to gain anything beside what runs."""


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
        scores = self._scores(self.model(evidence.outcomes), evidence, left)
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
        scores = self._scores(model, evidence, left)
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
        evidence = replace(self.evidence.read(study), running=())
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

    def _scores(self, model: SpeedModel, evidence: Evidence, left: Sequence[int]) -> Array:
        """Expected gain [candidates] over the best known, what runs, and no speculation, if they run at all."""
        ran = [o.config for o in evidence.outcomes]
        best = max([0.0, *(model.mean[self._index[config]] for config in ran if config in self._index)])
        gain = expected_gain(model.mean, model.variance, best)
        running = [self._index[config] for config in evidence.running if config in self._index]
        if running:
            chosen = [*running, *self._rivals(model, left)]
            covariance = np.asarray(sum(model.covariances(chosen)))
            gain *= UNSAMPLED
            gain[chosen] += expected_gain_beside(model.mean[chosen], covariance, range(len(running)), best)
        return gain * chance_to_run(self.configs, ran, evidence.faults)

    def _rivals(self, model: SpeedModel, among: Sequence[int]) -> list[int]:
        hopes = model.mean[among] + 2 * np.sqrt(model.variance[among])
        return [among[i] for i in np.argsort(-hopes)[:RIVALS]]

    def _near_best(self, model: SpeedModel, best: SpeculationConfig | None) -> float:
        own = [] if best is None else [self._index[best]]
        others = [i for i in range(len(self.configs)) if i not in own]
        chosen = [*own, *self._rivals(model, others)]
        covariance = sum(model.covariances(chosen))
        return probability_near_best(model.mean[chosen], np.asarray(covariance), 0 if own else None)
