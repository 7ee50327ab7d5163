"""What the trials of a study say to the structural sampler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from sweeper.records import Blame, Load
from sweeper.search.avoidance import Fault
from sweeper.search.candidates import REQUEUE, config_from, is_proposed, params_of
from sweeper.search.outcome import Outcome, outcome
from sweeper.speculation import SpeculationConfig
from sweeper.storage.stored_trial import record_of
from sweeper.study.newly_ended import NewlyEnded

T = TypeVar("T")

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
MOST = 250
"""Outcomes that a model is made of: its effort grows with their cube."""


@dataclass(frozen=True)
class Evidence:
    """Results and faults in the order of the trials, and what still runs."""

    outcomes: tuple[Outcome, ...]
    faults: tuple[Fault, ...]
    running: tuple[SpeculationConfig, ...] = ()


class EvidenceReader:
    """Reads every trial of a study once, when it has ended."""

    def __init__(self, loads: Sequence[Load]) -> None:
        self.loads = loads
        self._study: Study | None = None

    def read(self, study: Study, besides: int | None = None) -> Evidence:
        """What is stored by now, but for the trial ``besides``."""
        if study is not self._study:
            self._study, self._newly = study, NewlyEnded()
            self._outcomes: dict[int, Outcome] = {}
            self._faults: dict[int, Fault] = {}
        for trial in self._newly(study.get_trials(deepcopy=False)):
            self._take(trial)
        running = tuple(
            config_from(params_of(trial))
            for trial in self._newly.open
            if trial.state == TrialState.RUNNING and is_proposed(trial) and trial.number != besides
        )
        return Evidence(_in_order(self._outcomes), _in_order(self._faults), running)

    def _take(self, trial: FrozenTrial) -> None:
        if not is_proposed(trial):
            return
        config = config_from(params_of(trial))
        if trial.state in FINISHED:
            if found := outcome(trial, self.loads):
                self._outcomes[trial.number] = found
            return
        record = record_of(trial)
        if record is None or record.failure is None or trial.user_attrs.get(REQUEUE):
            return
        if record.failure.blames is not Blame.NOBODY:
            self._faults[trial.number] = Fault(config, record.failure.kind)


def _in_order(found: Mapping[int, T]) -> tuple[T, ...]:
    return tuple(found[number] for number in sorted(found))


def telling(outcomes: Sequence[Outcome]) -> Sequence[Outcome]:
    """At most MOST of them: the fastest ones, and of the others every so-manieth."""
    if len(outcomes) <= MOST:
        return outcomes
    ranked = sorted(range(len(outcomes)), key=lambda i: -outcomes[i].log_speedup)
    fast, slow = ranked[: MOST // 2], sorted(ranked[MOST // 2 :])
    kept = {*fast, *slow[:: -(-len(slow) // (MOST - len(fast)))]}
    return [outcome for i, outcome in enumerate(outcomes) if i in kept]
