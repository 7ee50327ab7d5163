"""How often finalists are measured again."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sweeper.config import StudyConfig
from sweeper.records import ConfirmationRound, TrialRecord, TrialState
from sweeper.speculation import NO_SPECULATION, SpeculationConfig
from sweeper.study.sweep import Sweep, Wishes

FINALIST = SpeculationConfig("EAGLE3", "a", 3, 1, 4)


def round_of(number: int, speedup: float, simulated: str = "") -> ConfirmationRound:
    plain = TrialRecord(NO_SPECULATION, NO_SPECULATION, TrialState.COMPLETE)
    record = TrialRecord(FINALIST, FINALIST, TrialState.COMPLETE, simulated=simulated)
    return ConfirmationRound(
        number, "gpu-1", ("baseline",), plain, {3: record}, {3: {"c=1": (speedup, 0.001, 99)}}
    )


def rounds_asked_for(
    study: StudyConfig, rounds: list[ConfirmationRound], allow_lossy: bool = False, **asked: int
) -> int:
    confirmation = study.confirmation.model_copy(update={"repeats": 2, "most_repeats": 4, **asked})
    search = study.search.model_copy(update={"objective_load": (1,)})
    stored = SimpleNamespace(rounds=lambda: rounds, checks=lambda: ())
    sweep = SimpleNamespace(
        config=study.model_copy(update={"confirmation": confirmation, "search": search}),
        stored=stored,
        wishes=Wishes(allow_lossy=allow_lossy),
    )
    return Sweep._rounds(cast(Any, sweep), [3])


OPEN = [round_of(1, 1.4), round_of(2, 1.2)]


@pytest.mark.parametrize(
    ("rounds", "asked", "expected"),
    [
        ([], {}, 2),
        (OPEN[:1], {}, 2),
        (OPEN, {}, 4),
        (OPEN, {"most_repeats": 2}, 2),
        (OPEN, {"most_repeats": 0}, 2),
        ([*OPEN, round_of(3, 1.3)], {}, 2),
        ([round_of(1, 1.3), round_of(2, 1.301)], {}, 2),
        ([round_of(1, 0.9), round_of(2, 0.8)], {}, 2),
        ([], {"repeats": 0}, 0),
    ],
)
def test_rounds_go_on_while_they_leave_open_whether_speculation_pays(
    study: StudyConfig, rounds: list[ConfirmationRound], asked: dict[str, int], expected: int
) -> None:
    assert rounds_asked_for(study, rounds, **asked) == expected


def test_a_finalist_that_changes_outputs_cannot_win_and_is_not_measured_for_that(study: StudyConfig) -> None:
    rounds = [round_of(1, 1.4), round_of(2, 1.2, simulated="as planted")]
    assert rounds_asked_for(study, rounds) == 2
    assert rounds_asked_for(study, rounds, allow_lossy=True) == 4
