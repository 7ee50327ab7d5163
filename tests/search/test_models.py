"""What the structural sampler's models say of accept lengths and costs."""

import numpy as np
import pytest

from sweeper.search.accept_curve import ACCEPT_CURVE, log_accept_length, truncations
from sweeper.search.cost_curve import log_cost
from sweeper.search.curve_fit import CurveFit, Observations
from sweeper.search.outcome import Outcome
from sweeper.search.rows import Names, Table
from sweeper.search.speed_model import SpeedModel
from sweeper.speculation import SpeculationConfig


def config(steps: int, topk: int = 1, tokens: int | None = None, draft: str = "a") -> SpeculationConfig:
    return SpeculationConfig("EAGLE3", draft, steps, topk, tokens or steps + 1)


def test_the_accept_length_of_a_chain_with_constant_acceptance() -> None:
    """q = 0.5 at every position, 3 steps: 1 + 0.5 + 0.25 + 0.125 = 1.875."""
    rows = Names().rows([config(3)])
    assert np.exp(log_accept_length(rows, np.array([[0.0, 0.0, 3.0]]), np.zeros(1)))[0] == pytest.approx(
        1.875
    )


def test_the_cost_of_a_round() -> None:
    """1 + 0.1 overhead + 3·0.05·(1 + 0.1·(4-1)) drafting + 0.02·(8-1) verifying + 0.03·(2-1) prefills = 1.465."""
    rows = Names().rows([config(3, 4, 8)])
    theta = np.log([[0.1, 0.05, 0.02, 0.1, 0.03, 1.0]])
    assert np.exp(log_cost(rows, theta, np.log([2.0])))[0] == pytest.approx(1.465)


def test_a_deep_chain_promises_the_shorter_ones_what_they_gave() -> None:
    """DESIGN.md's 15/1/16 run: chains of 1, 3 and 7 steps gave 1.83, 2.90 and 3.67 on the same prompts."""
    histogram = (47, 39, 28, 23, 17, 12, 5, 7, 3, 5, 0, 1, 1, 4, 0, 5)
    promised = {steps: (np.exp(value), error) for steps, value, error in truncations(histogram)}
    for steps, measured in ((1, 1.83), (3, 2.90), (7, 3.67)):
        value, error = promised[steps]
        assert abs(np.log(value / measured)) < 2 * error
    assert max(promised) == 14


def test_without_observations_the_prior_holds_published_accept_lengths() -> None:
    """Llama-4-Maverick's EAGLE3 gave 1.83 to 3.62 with 1 to 7 steps on HumanEval, a broken DFlash 1.34 with 5."""
    names = Names()
    rows = names.rows([config(1), config(7), config(5)])
    nothing = Observations(names.rows([]), np.zeros(0), np.zeros(0), np.zeros(0))
    prior = CurveFit(ACCEPT_CURVE, nothing)
    apart = np.log([1.83, 3.62, 1.34]) - prior.mean(rows, np.zeros(3))
    assert (np.abs(apart) < 2 * np.sqrt(prior.variance(rows, np.zeros(3)))).all()


def outcome(of: SpeculationConfig, length: float, speedup: float) -> Outcome:
    return Outcome(of, float(np.log(length)), 0.005, float(np.log(speedup)), 0.01)


def test_what_was_measured_is_known_and_what_lies_near_it_nearly() -> None:
    candidates = [config(3), config(4), config(12), config(3, draft="b")]
    model = SpeedModel(Table(candidates), [outcome(config(3), 2.6, 1.5)])
    deviation = np.sqrt(model.variance)
    assert model.mean[0] == pytest.approx(np.log(1.5), abs=0.02)
    assert deviation[0] < 0.03
    assert deviation[0] < deviation[1] < deviation[2] < deviation[3]


def test_a_cost_that_one_draft_showed_is_believed_of_its_sibling() -> None:
    candidates = [config(5, draft="b")]
    before = SpeedModel(Table(candidates), [])
    after = SpeedModel(Table(candidates), [outcome(config(5), 3.0, 1.5)])
    lengths = after.log_length
    assert after.cost.variance(after.rows, lengths)[0] < 0.1 * before.cost.variance(before.rows, lengths)[0]
    assert (
        after.accept.variance(after.rows, lengths)[0] > 0.5 * before.accept.variance(before.rows, lengths)[0]
    )


def test_the_covariance_has_the_variances_on_its_diagonal() -> None:
    candidates = [config(s) for s in (1, 3, 5, 8)] + [config(4, 4, 12), config(3, draft="b")]
    model = SpeedModel(Table(candidates), [outcome(config(8), 3.2, 1.4), outcome(config(4, 4, 12), 3.4, 1.6)])
    lengths, costs = model.covariances(list(range(len(candidates))))
    assert np.diag(lengths + costs) == pytest.approx(model.variance, rel=1e-6)
