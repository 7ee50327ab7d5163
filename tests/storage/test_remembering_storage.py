"""The driver's storage reads what was written once, and says what the database says."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import OperationalError

from sweeper.storage.attributes import Compressed, packed, unpacked
from sweeper.storage.patience import Patience
from sweeper.storage.remembering import remembering

SPACE = {"draft": CategoricalDistribution(["a", "b"]), "num_steps": IntDistribution(1, 8)}


class Counting(RDBStorage):
    """Counts how many trials are read, and loses the answer to one creation in three if told to."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.read = 0
        self.loses = False
        self._creations = 0

    def get_trial(self, trial_id: int) -> FrozenTrial:
        self.read += 1
        return super().get_trial(trial_id)

    def get_all_trials(self, *arguments: Any, **named: Any) -> list[FrozenTrial]:
        found = super().get_all_trials(*arguments, **named)
        self.read += len(found)
        return found

    def create_new_trial(self, *arguments: Any, **named: Any) -> int:
        created = super().create_new_trial(*arguments, **named)
        self._creations += 1
        if self.loses and self._creations % 3 == 0:
            raise OperationalError("", {}, Exception("connection lost"))
        return created


Made = tuple[Counting, optuna.Study, Callable[[], list[FrozenTrial]]]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """The database, a study over the storage that remembers, and what another reader finds there."""
    url = f"sqlite:///{tmp_path}/study.db"
    inner = Counting(url)
    storage = remembering(inner, Patience(5), None)
    study = optuna.create_study(
        storage=storage, study_name="s", sampler=optuna.samplers.RandomSampler(seed=1)
    )
    return inner, study, lambda: optuna.load_study(study_name="s", storage=url).trials


def random_steps(study: optuna.Study, count: int) -> None:
    """Trials that are asked for, queued, reported, ended and given up in any order."""
    draw, running = random.Random(3), []
    for _ in range(count):
        step = draw.choice(["ask", "ask", "queue", "note", "tell", "fail"])
        if step == "ask":
            running.append(study.ask(SPACE))
        elif step == "queue":
            study.enqueue_trial({"draft": "a", "num_steps": 2}, user_attrs={"attempt": 2})
        elif running and step == "note":
            draw.choice(running).set_user_attr("noted", draw.random())
        elif running:
            trial = running.pop(draw.randrange(len(running)))
            trial.report(0.5, step=0)
            study.tell(trial, 1.0) if step == "tell" else study.tell(trial, state=TrialState.FAIL)


@pytest.mark.parametrize("loses", [False, True])
def test_it_says_what_the_database_says(made: Made, loses: bool) -> None:
    inner, study, theirs = made
    inner.loses = loses
    for _ in range(4):
        random_steps(study, 12)
        assert study.get_trials(deepcopy=False) == theirs()
        waiting = study.get_trials(states=(TrialState.WAITING,))
        assert waiting == [t for t in theirs() if t.state == TrialState.WAITING]


def test_a_trial_costs_the_same_however_many_there_are(made: Made) -> None:
    inner, study, _ = made
    costs = []
    for _ in range(3):
        before = inner.read
        for _ in range(20):
            trial = study.ask(SPACE)
            study.get_trials(deepcopy=False)
            study.tell(trial, 1.0)
            study.get_trials(deepcopy=False)
        costs.append(inner.read - before)
    assert costs[0] >= costs[1] == costs[2] <= 20 * 6


def test_long_values_of_ended_trials_are_kept_compressed(made: Made) -> None:
    _, study, theirs = made
    record = {"log_tail": ["a line of a log"] * 400}
    trial = study.ask(SPACE)
    for name, value in packed("record", record):
        trial.set_user_attr(name, value)
    study.tell(trial, 1.0)
    [kept] = study.get_trials(deepcopy=False)
    assert isinstance(kept.user_attrs["record"], Compressed)
    assert unpacked(kept.user_attrs, "record") == unpacked(theirs()[0].user_attrs, "record") == record


def test_equal_distributions_are_kept_once(made: Made) -> None:
    """True and 1 are equal in Python, and are not the same choice."""
    _, study, theirs = made
    for _ in range(3):
        study.tell(study.ask({**SPACE, "flag": CategoricalDistribution([True, False])}), 1.0)
    study.tell(study.ask({**SPACE, "number": CategoricalDistribution([1, 0])}), 1.0)
    found = study.get_trials(deepcopy=False)
    assert len({id(trial.distributions["draft"]) for trial in found}) == 1
    assert repr(found[-1].distributions["number"]) == repr(CategoricalDistribution([1, 0]))
    assert [trial.distributions for trial in found] == [trial.distributions for trial in theirs()]


def test_attributes_of_the_study_are_what_was_set_last(made: Made) -> None:
    _, study, _ = made
    assert study.user_attrs == {}
    study.set_user_attr("format", 1)
    study.user_attrs["format"] = 9
    assert study.user_attrs == {"format": 1}
    study.set_user_attr("format", 2)
    assert study.user_attrs == {"format": 2}
