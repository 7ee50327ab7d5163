"""Where a speedup curve crosses 1.0."""

import pytest

from sweeper.breakeven import break_even, break_even_accept_length, crossing
from sweeper.records import Interval

# Published: arXiv:2503.01840, SGLang on one H100, Llama-3.1-8B, chains of 3; measured by others.
BATCH = [2, 4, 8, 16, 24, 32, 48, 56, 64]
EAGLE = [1.40, 1.38, 1.23, 1.02, 0.93, 0.94, 0.88, 0.99, 0.99]
EAGLE3 = [1.81, 1.82, 1.62, 1.48, 1.39, 1.32, 1.38, 1.34, 1.38]


def test_published_eagle_crosses_between_batch_16_and_24() -> None:
    found = crossing(BATCH, EAGLE)
    assert found.verdict == "crosses"
    assert found.concurrency is not None
    assert 16 < found.concurrency < 24


def test_published_eagle3_pays_at_every_tested_batch() -> None:
    assert crossing(BATCH, EAGLE3).verdict == "always"


def test_interpolation_is_linear_in_log_concurrency() -> None:
    # halfway between 1.2 and 0.8 is halfway between log 4 and log 16: 8
    assert crossing([1, 4, 16], [1.5, 1.2, 0.8]).concurrency == pytest.approx(8)


def test_a_config_that_never_pays() -> None:
    assert str(crossing([1, 4], [0.9, 0.5])) == "pays at no tested load"


def test_a_curve_that_dips_and_recovers_counts_its_last_fall() -> None:
    found = crossing([1, 2, 4, 8], [1.2, 0.9, 1.1, 0.9])
    assert found.concurrency is not None
    assert 4 < found.concurrency < 8


def test_a_curve_that_rises_says_from_where_it_pays() -> None:
    assert (
        str(crossing([1, 4, 16], [0.8, 1.2, 1.3])) == "pays from concurrency 2.0 on, up to the tested maximum"
    )
    there_and_back = crossing([1, 4, 16], [0.8, 1.2, 0.8])
    assert there_and_back.verdict == "crosses"
    assert (there_and_back.pays_from, there_and_back.concurrency) == (pytest.approx(2), pytest.approx(8))


def test_the_interval_comes_from_the_ends_of_the_speedups() -> None:
    speedups = [Interval(1.5, 1.4, 1.6), Interval(1.2, 1.1, 1.3), Interval(0.8, 0.7, 0.9)]
    found = break_even([1, 4, 16], speedups)
    assert found.low is not None
    assert found.concurrency is not None
    assert found.high is not None
    assert found.low < found.concurrency < found.high


def test_break_even_accept_length_is_the_ratio_of_step_times() -> None:
    assert break_even_accept_length(0.021, 0.007) == pytest.approx(3)
