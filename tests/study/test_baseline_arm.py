"""A baseline is measured again where its node was lost, and not for ever."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import pytest

from sweeper.config import StudyConfig
from sweeper.records import FailureClass, TrialRecord, TrialResult, TrialState
from sweeper.server.failures import failure
from sweeper.server.setup import EngineSetup
from sweeper.speculation import NO_SPECULATION
from sweeper.study.baseline_arm import MOST_LOST, BaselineArm
from sweeper.study.ending import MAX_ATTEMPTS
from sweeper.trial.order import TrialPlan
from sweeper.workload.prompts import PromptPlan

LOST, CRASH, ARGUMENT = FailureClass.LOST, FailureClass.CRASH, FailureClass.DRAFT_INCOMPATIBLE


def attempts(study: StudyConfig, ends: Iterable[FailureClass | None]) -> list[FailureClass | None]:
    """How the measurements ended that were made, of those that would come one after another."""
    plan = TrialPlan(study, EngineSetup(), PromptPlan({}, {}, (), ""))
    nobody = cast(Any, None)
    arm = BaselineArm(plan, nobody, nobody, nobody, lambda check: None, lambda: None)
    coming, made = iter(ends), list[FailureClass | None]()

    def measure() -> TrialResult:
        made.append(next(coming))
        why = failure(made[-1], "planted") if made[-1] else None
        state = TrialState.FAILED if why else TrialState.COMPLETE
        return TrialResult(TrialRecord(NO_SPECULATION, NO_SPECULATION, state, failure=why))

    arm._patiently(measure)
    return made


@pytest.mark.parametrize(
    ("ends", "made"),
    [
        ([None, CRASH], 1),
        ([LOST, LOST, LOST, None, None], 4),
        ([LOST] * 9, MOST_LOST),
        ([CRASH] * 9, MAX_ATTEMPTS),
        ([LOST, CRASH, LOST, None], 4),
        ([ARGUMENT, None], 1),
    ],
)
def test_nodes_may_go_one_after_another_and_servers_once(
    study: StudyConfig, ends: list[FailureClass | None], made: int
) -> None:
    assert attempts(study, ends) == ends[:made]
