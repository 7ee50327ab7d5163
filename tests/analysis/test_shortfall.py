"""What would make a losing config pay."""

import pytest

from sweeper.analysis.shortfall import Measured, needed_acceptance, shortfall
from sweeper.analysis.step_time import StepTimeSplit
from sweeper.speculation import SpeculationConfig

CHAIN = SpeculationConfig("EAGLE3", "a", 3, 1, 4)
SLOW = Measured(CHAIN, accept_length=1.5, step_time_s=0.020, baseline_step_time_s=0.010)


def split(drafting_s: float | None) -> StepTimeSplit:
    return StepTimeSplit(0.010, 0.001, drafting_s, 0.001, None, 0.0)


def test_what_pays_lacks_nothing() -> None:
    assert shortfall(Measured(CHAIN, 2.5, 0.020, 0.010)) is None


def test_either_it_accepts_more_or_its_round_is_shorter() -> None:
    found = shortfall(SLOW)
    assert found is not None
    assert found.needed_accept_length == pytest.approx(2.0)
    assert found.needed_step_time_s == pytest.approx(0.015)
    # p + p² + p³ = 1
    assert found.needed_acceptance == pytest.approx(0.543689, abs=1e-5)


def test_a_draft_that_is_always_right_may_not_be_enough() -> None:
    assert needed_acceptance(4.0, 3) == pytest.approx(1.0)
    assert needed_acceptance(4.1, 3) is None


def test_a_cheaper_draft_helps_as_far_as_it_costs_anything() -> None:
    # 5 ms must go: of 8 ms of drafting 3 may stay, of 4 ms nothing is enough
    cheaper, hopeless = shortfall(SLOW, split(0.008)), shortfall(SLOW, split(0.004))
    assert cheaper is not None
    assert cheaper.draft_cost_share == pytest.approx(3 / 8)
    assert hopeless is not None
    assert hopeless.draft_cost_share is None
