"""What another launch may gain, against values worked out by hand."""

import numpy as np
import pytest

from sweeper.search.gain import expected_gain, expected_gain_beside, probability_near_best


def test_a_candidate_that_is_expected_to_equal_the_best_gains_by_its_uncertainty() -> None:
    """m = b = 0, σ = 0.1: exp(0.005)·Φ(0.1) - Φ(0) = 1.0050125 · 0.5398278 - 0.5 = 0.0425337."""
    assert expected_gain(np.array([0.0]), np.array([0.01]), 0.0)[0] == pytest.approx(0.0425337, abs=1e-6)


def test_a_candidate_that_is_known_to_be_faster_gains_just_that() -> None:
    assert expected_gain(np.array([np.log(1.2)]), np.array([1e-10]), 0.0)[0] == pytest.approx(0.2, abs=1e-6)


def test_a_candidate_that_is_known_to_be_slower_gains_nothing() -> None:
    assert expected_gain(np.array([-0.5]), np.array([1e-8]), 0.0)[0] == 0


def test_the_probability_of_being_near_the_best() -> None:
    """Two candidates, ours known to be 1.5 and a rival N(ln 1.5, 0.1²): P(Z <= -ln(0.98)/0.1 = 0.2020) = 0.5801."""
    mean = np.log([1.5, 1.5])
    covariance = np.diag([1e-12, 0.01])
    assert probability_near_best(mean, covariance, 0) == pytest.approx(0.58, abs=0.03)
    assert probability_near_best(mean, np.diag([1e-12, 1e-12]), 0) == 1


def test_no_speculation_is_the_best_where_nothing_can_beat_it() -> None:
    assert probability_near_best(np.log([0.7, 0.8]), np.diag([1e-4, 1e-4]), None) == 1


def test_candidates_that_hang_together_need_no_full_rank() -> None:
    """All move as one, and only no speculation can be better: P(Z > ln(0.98)/0.2 = -0.101) = 0.540."""
    assert probability_near_best(np.zeros(3), np.ones((3, 3)) * 0.04, 1) == pytest.approx(0.54, abs=0.03)


def test_beside_a_launch_that_is_known_nothing_changes() -> None:
    mean, best = np.log([1.1, 1.3, 1.25]), np.log(1.2)
    covariance = np.diag([1e-12, 0.01, 0.04])
    alone = expected_gain(mean, np.diag(covariance), best)
    assert expected_gain_beside(mean, covariance, [0], best) == pytest.approx(alone, abs=0.005)


def test_beside_its_own_twin_a_candidate_gains_nothing_and_an_independent_one_does() -> None:
    """The third is N(0, 0.2²) over the larger of 0 and the first's N(0, 0.2²); by quadrature 0.0640."""
    covariance = 0.04 * np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    gain = expected_gain_beside(np.zeros(3), covariance, [0], 0.0)
    assert gain[:2] == pytest.approx(0, abs=1e-3)
    assert gain[2] == pytest.approx(0.064, abs=0.005)
