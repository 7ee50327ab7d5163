"""The storage of a study's driver: since nobody else writes, it knows by heart what it has written.

Optuna reads all unfinished trials again whenever anybody asks for the trials, and keeps every record it has ever read
as Python objects: with hundreds of servers and thousands of trials that is seconds and gigabytes. Here a trial is read
once after it was written, the records of ended trials are kept compressed, and equal distributions are kept once: that
of the drafts holds all their names, and would be there for every trial.
"""

from __future__ import annotations

import copy
from collections.abc import Container
from typing import Any

from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages import BaseStorage, RDBStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from sweeper.storage.attributes import RECORD, compressed
from sweeper.storage.patience import Patience
from sweeper.storage.patient import Fence, PatientStorage


class RememberingStorage(PatientStorage):
    """``PatientStorage`` that reads only what has changed, for a process that alone writes its studies.

    ``get_all_trials`` returns the same objects again: who asks for no copies must not change them.
    """

    def __init__(self, inner: BaseStorage, patience: Patience) -> None:
        super().__init__(inner, patience)
        self._trials: dict[int, list[FrozenTrial]] = {}
        self._study_attributes: dict[int, dict[str, Any]] = {}
        self._directions: dict[int, list[StudyDirection]] = {}
        self._place: dict[int, tuple[int, int]] = {}
        """Study and number of every trial that is known."""
        self._stale: set[int] = set()
        self._distributions: dict[str, BaseDistribution] = {}
        """By what they are in JSON: as dictionary keys, choices 1 and true would be the same."""

    def uncertain(self) -> None:
        """An operation was tried again: what the first attempt left is known only to the database."""
        self._trials.clear()
        self._study_attributes.clear()
        self._place.clear()
        self._stale.clear()

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        self._refresh(study_id)
        known = self._trials[study_id]
        found = list(known) if states is None else [trial for trial in known if trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def get_trial(self, trial_id: int) -> FrozenTrial:
        if trial_id not in self._place:
            return self._read(trial_id)
        study, number = self._place[trial_id]
        if trial_id in self._stale:
            self._refresh(study)
        return self._trials[study][number]

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        if study_id not in self._study_attributes:
            self._study_attributes[study_id] = self._call("get_study_user_attrs", study_id)
        return dict(self._study_attributes[study_id])

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        self._study_attributes.pop(study_id, None)
        self._call("set_study_user_attr", study_id, key, value)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        if study_id not in self._directions:
            self._directions[study_id] = self._call("get_study_directions", study_id)
        return list(self._directions[study_id])

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        trial_id: int = self._call("create_new_trial", study_id, template_trial)
        if study_id in self._trials:
            self._insert(study_id, self._read(trial_id))
        return trial_id

    def _insert(self, study_id: int, trial: FrozenTrial) -> None:
        known = self._trials.get(study_id)
        if known is None or trial.number != len(
            known
        ):  # reading it took a second attempt, or another one came first
            self._trials.pop(study_id, None)
            return
        known.append(trial)
        self._place[trial._trial_id] = study_id, trial.number

    def _refresh(self, study_id: int) -> None:
        if study_id not in self._trials:
            self._load(study_id)
        for trial_id in list(self._stale):
            trial = self._read(trial_id)
            if study_id not in self._trials:  # it took a second attempt
                self._load(study_id)
            study, number = self._place[trial_id]
            self._trials[study][number] = trial
            self._stale.discard(trial_id)

    def _load(self, study_id: int) -> None:
        self._stale.clear()
        found: list[FrozenTrial] = self._call("get_all_trials", study_id, deepcopy=False)
        self._trials[study_id] = [self._slim(trial) for trial in found]
        self._place |= {trial._trial_id: (study_id, trial.number) for trial in found}

    def _read(self, trial_id: int) -> FrozenTrial:
        trial: FrozenTrial = self._call("get_trial", trial_id)
        return self._slim(trial)

    def _slim(self, trial: FrozenTrial) -> FrozenTrial:
        """With its record compressed if it has ended; nobody else holds the object yet."""
        trial.distributions = {
            name: self._distributions.setdefault(distribution_to_json(own), own)
            for name, own in trial.distributions.items()
        }
        if trial.state.is_finished():
            trial.user_attrs = compressed(trial.user_attrs, RECORD)
        return trial

    def _changed(self, trial_id: int) -> None:
        if trial_id in self._place:
            self._stale.add(trial_id)

    def set_trial_state_values(self, trial_id: int, *rest: Any, **named: Any) -> bool:
        self._changed(trial_id)
        return super().set_trial_state_values(trial_id, *rest, **named)

    def set_trial_param(self, trial_id: int, *rest: Any, **named: Any) -> None:
        self._changed(trial_id)
        self._call("set_trial_param", trial_id, *rest, **named)

    def set_trial_intermediate_value(self, trial_id: int, *rest: Any, **named: Any) -> None:
        self._changed(trial_id)
        self._call("set_trial_intermediate_value", trial_id, *rest, **named)

    def set_trial_user_attr(self, trial_id: int, *rest: Any, **named: Any) -> None:
        self._changed(trial_id)
        self._call("set_trial_user_attr", trial_id, *rest, **named)

    def set_trial_system_attr(self, trial_id: int, *rest: Any, **named: Any) -> None:
        self._changed(trial_id)
        self._call("set_trial_system_attr", trial_id, *rest, **named)


def remembering(rdb: RDBStorage, patience: Patience, fence: Fence | None) -> BaseStorage:
    """``rdb`` with patience and a memory; nothing is committed that ``fence`` does not let pass."""
    make: Any = RememberingStorage  # methods that it inherits are unseen by type checkers
    storage: RememberingStorage = make(rdb, patience)
    if fence is not None:
        storage.guard(rdb.scoped_session, fence)
    return storage
