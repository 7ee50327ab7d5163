"""Counters of every release give the same accept length."""

from typing import Any

import pytest

from sweeper.server.meta_info import MissingCountersError, speculation_counters

HISTOGRAM = [3, 2, 3, 2, 3, 2, 0, 2]
LENGTHS = {"spec_accept_length": 64 / 17, "spec_accept_rate": 0.42}
OLD = {"spec_accept_token_num": 50, "spec_draft_token_num": 119}
MIDDLE = {"spec_accepted_drafts": 50, "spec_proposed_drafts": 119}
NEW = {"spec_num_correct_drafts": 50, "spec_num_proposed_drafts": 119}
META = {
    "0.5.2": {},
    "0.5.4": LENGTHS,
    "0.5.6": {**LENGTHS, **OLD},
    "0.5.9": {**LENGTHS, **OLD, "spec_accept_histogram": HISTOGRAM},
    "0.5.11": {**LENGTHS, **MIDDLE, "spec_accept_histogram": HISTOGRAM},
    "0.5.12": {
        **LENGTHS,
        **MIDDLE,
        **NEW,
        "spec_accept_histogram": HISTOGRAM,
        "spec_correct_drafts_histogram": HISTOGRAM,
    },
    "0.5.18": {
        **LENGTHS,
        **MIDDLE,
        **NEW,
        "spec_accept_histogram": HISTOGRAM,
        "spec_correct_drafts_histogram": HISTOGRAM,
        "spec_cap_length": 0,
    },
    "0.5.21": {**LENGTHS, **NEW, "spec_correct_drafts_histogram": HISTOGRAM},
    "0.5.23": {**LENGTHS, **NEW, "spec_correct_drafts_histogram": HISTOGRAM, "reasoning_tokens": 0},
}
"""``meta_info`` of one request, by release: 64 tokens from 17 verify rounds with 50 accepted drafts (4 had no room)."""
COMMON = {"completion_tokens": 64, "spec_verify_ct": 17}


@pytest.mark.parametrize("version", META)
def test_all_releases_give_the_same_accept_length(version: str) -> None:
    meta = {**COMMON, **META[version]}
    counters = speculation_counters(meta)
    assert counters is not None
    assert (meta["completion_tokens"] - 1) / counters.verify_rounds == pytest.approx(63 / 17)
    assert counters.accepted_drafts == (None if version in ("0.5.2", "0.5.4") else 50)
    assert counters.histogram == (None if version in ("0.5.2", "0.5.4", "0.5.6") else tuple(HISTOGRAM))
    assert counters.sources["accept_length"] == "(completion_tokens - 1) / spec_verify_ct"
    assert set(counters.sources.values()) - {counters.sources["accept_length"]} <= meta.keys()


def test_drafts_that_the_output_had_no_room_for_are_no_contradiction() -> None:
    """Seen on 0.5.23: the last round's accepted drafts count although the output ended before them."""
    meta = {"completion_tokens": 64, "spec_verify_ct": 17, "spec_num_correct_drafts": 50}
    assert speculation_counters({**meta, "spec_correct_drafts_histogram": [3, 2, 3, 1, 1, 7]}) is not None


def test_a_request_without_verify_rounds_has_no_counters() -> None:
    assert speculation_counters({"completion_tokens": 1}) is None
    assert (
        speculation_counters({"completion_tokens": 1, "spec_verify_ct": 0, "spec_accept_length": 0}) is None
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"spec_correct_drafts_histogram": [1, 1]},
        {"spec_num_correct_drafts": 45},
        {"completion_tokens": 90},
        {"completion_tokens": 40},
        {"completion_tokens": 17},
    ],
    ids=[
        "histogram does not sum to V",
        "histogram does not give D",
        "more tokens than V and D can give",
        "fewer tokens than the last round explains",
        "fewer tokens than rounds",
    ],
)
def test_counters_that_contradict_each_other_are_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(MissingCountersError):
        speculation_counters({**COMMON, **META["0.5.23"], **wrong})
