"""Intervals hold the truth as often as they say, and hand-computed values come out."""

import math

import numpy as np
import pytest

from sweeper.analysis.intervals import (
    LogEstimate,
    correlation,
    geometric_mean,
    influences,
    pooled,
    product,
    quotient,
    rate,
    ratio,
    scatter,
    standard_error,
)
from sweeper.records import Interval


def test_a_ratio_of_two_equal_items_is_sure() -> None:
    found = ratio([4, 4], [2, 2])
    assert found.value == 2
    assert found.error == 0
    assert found.interval == Interval(2, 2, 2)


def test_the_error_of_a_ratio_by_hand() -> None:
    # u = (1/4 - 1/2, 3/4 - 1/2) = (-1/4, 1/4); B/(B-1) Σu² = 2 · 1/8 = 1/4; its root is 1/2
    assert ratio([1, 3], [1, 1]).error == pytest.approx(0.5)
    # Student's t at one degree of freedom is 12.706
    assert ratio([1, 3], [1, 1]).relative_half_width == pytest.approx(12.706 / 2, rel=1e-4)


def test_one_item_says_nothing_of_the_error() -> None:
    found = ratio([3], [1])
    assert found.value == 3
    assert found.relative_half_width > 100
    assert math.isfinite(found.interval.high)


def test_errors_of_factors_add_in_squares() -> None:
    a, b = LogEstimate(2, 0.03, 10), LogEstimate(5, 0.04, 10)
    assert product(a, b).value == 10
    assert product(a, b).error == pytest.approx(0.05)
    assert quotient(a, b).value == pytest.approx(0.4)
    # Welch and Satterthwaite: (9+16)² / (81/10 + 256/10), in units of 1e-4
    assert product(a, b).freedom == pytest.approx(625 / 33.7)


def test_repeats_that_scatter_widen_the_pooled_interval() -> None:
    alike, apart = [
        [LogEstimate(a, 0.01, 10), LogEstimate(b, 0.01, 10)] for a, b in ((1.2, 1.2), (1.0, 1.44))
    ]
    assert scatter([alike]) == (0.0, 1)
    # the logs are ±0.1823 apart from their mean: a standard deviation of 0.2578, and 0.1823 for the mean of two
    assert scatter([apart])[0] == pytest.approx(math.sqrt(2) * math.log(1.2))
    assert scatter([apart, alike]) == (pytest.approx(math.log(1.2)), 2)
    assert pooled(alike, scatter([alike])).value == pytest.approx(1.2)
    assert pooled(alike, scatter([alike])).error == pytest.approx(0.01 / math.sqrt(2))
    assert pooled(apart, scatter([apart])).value == pytest.approx(1.2)
    assert pooled(apart, scatter([apart])).error == pytest.approx(math.log(1.2))
    assert pooled(apart, scatter([apart])).freedom == 1
    assert pooled([LogEstimate(1.3, 0.02, 7)]) == LogEstimate(pytest.approx(1.3), 0.02, pytest.approx(7))


def test_the_geometric_mean_takes_the_ends_along() -> None:
    assert geometric_mean([Interval(1, 0.5, 2), Interval(4, 2, 8)]) == Interval(2, 1, 4)


def autoregressive(rng: np.random.Generator, rho: float, count: int) -> np.ndarray:
    series = np.empty(count)
    series[0] = rng.normal()
    for i in range(1, count):
        series[i] = rho * series[i - 1] + math.sqrt(1 - rho**2) * rng.normal()
    return series


@pytest.mark.parametrize(("rho", "least"), [(0.0, 0.92), (0.4, 0.90), (0.7, 0.84)])
def test_a_rate_covers_the_truth_though_the_slices_are_correlated(rho: float, least: float) -> None:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(1000):
        found = rate(100 + 10 * autoregressive(rng, rho, 20), 20.0).interval
        held += found.low <= 100 <= found.high
    assert held / 1000 >= least


def test_ignoring_the_correlation_would_not_cover() -> None:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(1000):
        counts = 100 + 10 * autoregressive(rng, 0.7, 20)
        error = standard_error(influences(counts, np.ones(20)))
        held += abs(math.log(counts.mean() / 100)) < 2.09 * error
    assert held / 1000 < 0.75


def test_correlation_is_neither_negative_nor_unbounded() -> None:
    assert correlation(np.array([1.0, -1, 1, -1, 1, -1])) == 0
    assert correlation(np.repeat([1.0, -1.0], 10)) == 0.8
    assert correlation(np.zeros(20)) == 0
