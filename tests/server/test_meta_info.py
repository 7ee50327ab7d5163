"""Counters of every release give the same accept length."""

from typing import Any

import pytest

from sweeper.server.meta_info import MissingCountersError, speculation_counters

COMMON = {"completion_tokens": 64, "spec_verify_ct": 17}
NEW = {"spec_num_correct_drafts": 50, "spec_correct_drafts_histogram": [3, 2, 3, 2, 3, 2, 0, 2]}


@pytest.mark.parametrize(
    "meta",
    [
        {**COMMON, **NEW},
        {**COMMON, "spec_accepted_drafts": 50, "spec_accept_histogram": NEW["spec_correct_drafts_histogram"]},
        {**COMMON, "spec_accept_token_num": 50},
        COMMON,
    ],
    ids=["0.5.12+", "0.5.11", "0.5.6", "0.5.2"],
)
def test_names_of_all_releases(meta: dict[str, Any]) -> None:
    counters = speculation_counters(meta)
    assert counters is not None
    assert counters.verify_rounds == 17
    assert counters.accepted_drafts in (50, None)


def test_a_request_without_verify_rounds_has_no_counters() -> None:
    assert speculation_counters({"completion_tokens": 1}) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"spec_correct_drafts_histogram": [1, 1]},
        {"spec_num_correct_drafts": 45},
        {"completion_tokens": 90},
    ],
    ids=["histogram does not sum to V", "histogram does not give D", "more tokens than V and D can give"],
)
def test_counters_that_contradict_each_other_are_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(MissingCountersError):
        speculation_counters({**COMMON, **NEW, **wrong})
