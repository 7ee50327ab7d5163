"""Studies that somebody wrote into: a report or one clear error, never a traceback."""

from __future__ import annotations

from typing import Any

import optuna
import pytest

from reports.html import html_report
from reports.study_report import build_report
from sweeper.config import StudyConfig
from sweeper.errors import StudyChangedError
from sweeper.search.candidates import distributions, parameters
from sweeper.space import Candidate
from sweeper.speculation import SpeculationConfig

CHAIN = SpeculationConfig("EAGLE3", "a", 3, 1, 4)


def study_with(attributes: dict[str, Any], of_trial: dict[str, Any]) -> optuna.Study:
    made = optuna.create_study(direction="maximize")
    for name, value in attributes.items():
        made.set_user_attr(name, value)
    trial = optuna.trial.create_trial(
        params=parameters(CHAIN),
        distributions=distributions([Candidate(CHAIN, CHAIN, ())]),
        value=1.2,
        user_attrs=of_trial,
    )
    made.add_trial(trial)
    return made


@pytest.mark.parametrize(
    "attributes",
    [
        {"baseline_record": {"nothing": 1}},
        {"baseline_record": {"parts": 2, "digest": "d"}},
        {"baseline check 1": "drifted"},
        {"confirmation 1": [1, 2]},
        {"objective_loads": ["fast"]},
        {"objective_loads": 3},
        {"prompt_notes": {"a": 1}},
        {"skipped": ["b"]},
        {"notice 1": 7},
    ],
    ids=str,
)
def test_an_attribute_that_is_something_else_is_one_error_that_names_it(
    study: StudyConfig, attributes: dict[str, Any]
) -> None:
    name = next(iter(attributes)).removesuffix(" 1")
    with pytest.raises(StudyChangedError, match=name):
        build_report(study, study_with(attributes, {}))


@pytest.mark.parametrize(
    "attributes",
    [
        {"record": "fast"},
        {"record": {"parts": 1, "digest": "d"}},
        {"speedups": {"c=1": 2}},
        {"speedups": {"x": [1, 2, 3]}},
    ],
    ids=str,
)
def test_a_trial_that_is_something_else_is_one_error_that_names_it(
    study: StudyConfig, attributes: dict[str, Any]
) -> None:
    with pytest.raises(StudyChangedError, match="trial 0"):
        build_report(study, study_with({}, attributes))


def test_other_peoples_attributes_and_trials_are_let_be(study: StudyConfig) -> None:
    """Notes, a trial of one's own without a record, a name that only begins like one of ours."""
    found = build_report(study, study_with({"confirmation plan": "monday", "x": None}, {"note": "mine"}))
    assert [trial.state for trial in found.trials] == ["COMPLETE"]
    assert "No verdict" in html_report(found)
