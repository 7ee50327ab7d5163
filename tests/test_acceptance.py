"""Accept lengths and acceptance by position, against numbers worked out by hand or published."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.acceptance import (
    accept_length,
    accept_rate,
    add_histograms,
    conditional_acceptance,
    expected_accept_length,
    marginal_acceptance,
)


def test_accept_length_leaves_out_the_token_that_prefill_produced() -> None:
    assert accept_length(64, 17) == pytest.approx(63 / 17)


def test_accept_length_of_no_rounds_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one verify round"):
        accept_length(1, 0)


def test_accept_rate_counts_drafts_only() -> None:
    assert accept_rate(1.0, 4) == 0
    assert accept_rate(4.0, 4) == 1


def test_marginal_and_conditional_acceptance() -> None:
    histogram = [4, 2, 1, 1]  # of 8 rounds, 4 accept at least one draft, 2 at least two, 1 three
    assert marginal_acceptance(histogram) == [0.5, 0.25, 0.125]
    assert conditional_acceptance(histogram) == [0.5, 0.5, 0.5]


def test_conditional_acceptance_ends_where_nothing_was_accepted() -> None:
    assert conditional_acceptance([5, 5, 0, 0]) == [0.5, 0.0]


def test_expected_accept_length_of_the_published_deployment_gap_case() -> None:
    # conditional accuracies 0.747 and 0.67: 1 + 0.747 + 0.747 * 0.67
    assert expected_accept_length([0.747, 0.67]) == pytest.approx(2.24749)


@given(st.lists(st.lists(st.integers(0, 50), max_size=16), max_size=5))
def test_sums_of_histograms_keep_every_round(histograms: list[list[int]]) -> None:
    assert sum(add_histograms(histograms)) == sum(map(sum, histograms))


@given(st.lists(st.integers(0, 50), min_size=2, max_size=16).filter(any))
def test_mean_accepted_drafts_equal_the_sum_of_marginals(histogram: list[int]) -> None:
    drafts = sum(i * count for i, count in enumerate(histogram)) / sum(histogram)
    assert sum(marginal_acceptance(histogram)) == pytest.approx(drafts)
