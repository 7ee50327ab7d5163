"""Which trials go onto a running server, and when that is not believed any more."""

from __future__ import annotations

from typing import Any

import pytest

from sweeper.config import StudyConfig
from sweeper.drafts.preflight.findings import DraftReport
from sweeper.records import HotSwap, SwapOutcome, TrialRecord, TrialState
from sweeper.server.setup import EngineSetup
from sweeper.space import Candidate
from sweeper.speculation import SpeculationConfig
from sweeper.study.hot_swaps import UNKNOWN_SHARE, HotSwaps
from sweeper.trial.order import LAUNCH, HotSwapOrder, TrialPlan
from sweeper.workload.prompts import PromptPlan

FAMILIES = {"a": "one", "b": "one", "c": "one", "other": "two"}
CONFIGS = {
    f"{draft}{steps}": SpeculationConfig("EAGLE3", draft, steps, 1, steps + 1)
    for draft in FAMILIES
    for steps in (1, 3)
}


def swaps(
    study: StudyConfig,
    *names: str,
    ordered: bool = True,
    launches: int = 99,
    version: str = "0.5.23",
    **search: Any,
) -> HotSwaps:
    reports = tuple(DraftReport(d, "EAGLE3", d, "EAGLE3", family=f) for d, f in FAMILIES.items())
    search = {"hot_swap": "auto", **search}
    study = study.model_copy(update={"search": study.search.model_copy(update=search)})
    prompts = PromptPlan({}, {}, (), "")
    plan = TrialPlan(study, EngineSetup(version), prompts, reports)
    chosen = [CONFIGS[name] for name in names or CONFIGS]
    found = HotSwaps(plan, [Candidate(config, config, ()) for config in chosen], ordered)
    found.expect(chosen, launches)
    return found


def ended(name: str, swap: HotSwap | None = None, start_s: float = 30, measure_s: float = 10) -> TrialRecord:
    config = CONFIGS[name]
    return TrialRecord(
        config, config, TrialState.COMPLETE, hot_swap=swap, start_s=start_s, measure_s=measure_s
    )


def proof(good: bool) -> HotSwap:
    outcome = SwapOutcome.PROVEN if good else SwapOutcome.REFUTED
    return HotSwap("a", 5, outcome, 2.0, 2.0 if good else 1.0, "" if good else "planted")


def test_siblings_under_equal_numbers_share_a_launch_and_the_first_is_launched_too(
    study: StudyConfig,
) -> None:
    found = swaps(study)
    left = [CONFIGS[name] for name in ("b1", "c1", "a3", "other1")]
    assert found.order(CONFIGS["a1"], "s", lambda: left, None) == HotSwapOrder(keep=True)
    found.ended("s", CONFIGS["a1"], kept=True)
    assert found.near("s", lambda: left) == {CONFIGS["b1"]: UNKNOWN_SHARE, CONFIGS["c1"]: UNKNOWN_SHARE}
    assert found.near("elsewhere", lambda: left) == {}
    assert found.order(CONFIGS["b1"], "s", lambda: left[1:], None) == HotSwapOrder(
        take=True, prove=True, keep=True
    )
    assert found.saw(ended("b1", proof(True))) == ""
    assert found.order(CONFIGS["c1"], "s", lambda: left[2:], None) == HotSwapOrder(take=True)
    assert found.order(CONFIGS["a3"], "s", lambda: [CONFIGS["b3"]], None) == HotSwapOrder(keep=True)
    assert found.order(CONFIGS["other1"], "s", lambda: [CONFIGS["other3"]], None) == LAUNCH


def test_what_a_swap_saves_is_learned_from_launches(study: StudyConfig) -> None:
    found = swaps(study)
    found.ended("s", CONFIGS["a1"], kept=True)
    found.saw(ended("a1"))
    found.saw(ended("b1", HotSwap("a", 5), start_s=5))
    assert found.near("s", lambda: [CONFIGS["c1"]]) == {CONFIGS["c1"]: pytest.approx(15 / 40)}


def test_a_swap_that_gave_something_else_is_the_last(study: StudyConfig) -> None:
    found = swaps(study)
    found.ended("s", CONFIGS["a1"], kept=True)
    assert "from now on every checkpoint like it is launched" in found.saw(ended("b1", proof(False)))
    assert found.near("s", lambda: [CONFIGS["c1"]]) == {}
    assert found.order(CONFIGS["c1"], "s", lambda: [CONFIGS["b1"]], None) == LAUNCH


def test_a_server_that_was_not_kept_takes_nothing(study: StudyConfig) -> None:
    found = swaps(study)
    found.ended("s", CONFIGS["a1"], kept=True)
    found.ended("s", CONFIGS["a3"], kept=False)
    assert found.near("s", lambda: list(CONFIGS.values())) == {}


@pytest.mark.parametrize(
    "changes",
    [{"hot_swap": "off"}, {"version": "0.5.20"}, {"ordered": False}, {"launches": 5}],
    ids=["unwanted", "old", "any order", "budget"],
)
def test_where_it_cannot_be_or_must_not_be_every_config_is_launched(
    study: StudyConfig, changes: dict[str, Any]
) -> None:
    assert swaps(study, **changes).order(CONFIGS["a1"], "s", lambda: list(CONFIGS.values()), None) == LAUNCH


def test_a_proof_must_be_worth_its_launch(study: StudyConfig) -> None:
    few = swaps(study, "a1", "b1", "a3", "b3")
    assert few.order(CONFIGS["a1"], "s", lambda: [CONFIGS["b1"]], None) == LAUNCH
    enough = swaps(study, "a1", "b1", "c1", "a3", "b3")
    assert enough.order(CONFIGS["a1"], "s", lambda: [CONFIGS["b1"]], None) == HotSwapOrder(keep=True)
