"""Where a speedup curve crosses 1.0."""

import pytest

from sweeper.breakeven import break_even, break_even_accept_length, crossing
from sweeper.records import Interval

# Published: arXiv:2503.01840, tables 3 (SGLang, one H100, chains of 3) and 5 (vLLM, A100, chains of 2); Llama-3.1-8B,
# MT-Bench; measured by others.
BATCH = [2, 4, 8, 16, 24, 32, 48, 56, 64]
EAGLE = [1.40, 1.38, 1.23, 1.02, 0.93, 0.94, 0.88, 0.99, 0.99]
EAGLE3 = [1.81, 1.82, 1.62, 1.48, 1.39, 1.32, 1.38, 1.34, 1.38]
EAGLE_VLLM = [1.30, 1.25, 1.21, 1.10, 1.03, 0.93, 0.82, 0.71]


def test_published_eagle_crosses_between_batch_16_and_24() -> None:
    found = crossing(BATCH, EAGLE)
    assert found.verdict == "crosses"
    assert found.concurrency is not None
    assert 16 < found.concurrency < 24


def test_published_eagle3_pays_at_every_tested_batch() -> None:
    assert crossing(BATCH, EAGLE3).verdict == "always"


def test_published_eagle_on_vllm_crosses_between_batch_24_and_32() -> None:
    found = crossing(BATCH[:8], EAGLE_VLLM)
    assert found.concurrency is not None
    assert 24 < found.concurrency < 32


def test_interpolation_is_linear_in_log_concurrency() -> None:
    # halfway between 1.2 and 0.8 is halfway between log 4 and log 16: 8
    assert crossing([1, 4, 16], [1.5, 1.2, 0.8]).concurrency == pytest.approx(8)


def test_a_config_that_never_pays() -> None:
    surely = break_even([1, 4], [Interval(0.9, 0.8, 0.95), Interval(0.5, 0.4, 0.6)])
    assert str(surely) == "pays at no tested load"
    perhaps = break_even([1, 4], [Interval(0.9, 0.8, 1.1), Interval(0.5, 0.4, 0.9)])
    assert str(perhaps) == "pays at no tested load (95 %: perhaps up to concurrency 2.0)"


def test_a_config_that_always_pays_says_how_far_that_is_sure() -> None:
    surely = break_even([1, 4], [Interval(1.5, 1.4, 1.6), Interval(1.2, 1.1, 1.3)])
    assert str(surely) == "pays at every tested load"
    half = break_even([1, 4], [Interval(1.5, 1.1, 1.6), Interval(1.2, 0.9, 1.3)])
    assert str(half) == "pays at every tested load (95 %: surely up to concurrency 2.0)"
    nowhere = break_even([1, 4], [Interval(1.5, 0.9, 1.6), Interval(1.2, 0.9, 1.3)])
    assert str(nowhere) == "pays at every tested load (95 %: not surely)"


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
