"""Replies in all forms that releases send them in."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sweeper.load.reply import Reply, whole_text
from tests.load.scripted_server import cumulative, event, incremental, text_alone_cumulative

FORMS = [incremental, cumulative, text_alone_cumulative]


def read(data: bytes, keep_text: bool = True) -> Reply:
    reply = Reply(keep_text, lambda at: None)
    reply.feed(data, 1.0)
    return reply


@pytest.mark.parametrize("form", FORMS)
@given(
    words=st.lists(st.sampled_from([" the", " cat", " sat", "", "é"]), min_size=1, max_size=12, unique=True)
)
def test_text_and_ids_are_whole_in_every_form(form: Callable[..., list[bytes]], words: list[str]) -> None:
    if form is text_alone_cumulative:
        assume(sum(map(bool, words)) != 1)  # one piece of text again and again: that might be deltas
    reply = read(b"".join(form(words)))
    assert reply.text == "".join(words)
    assert reply.token_ids == tuple(range(1, len(words) + 1))


@pytest.mark.parametrize("form", [incremental, cumulative])
def test_a_reply_that_repeats_itself_is_whole_too(form: Callable[..., list[bytes]]) -> None:
    assert read(b"".join(form(["a"] * 9))).text == "a" * 9
    assert read(b"".join(form(["", "a", "a", "", "a"]))).text == "aaa"


def test_a_last_chunk_that_only_ends_a_cumulative_reply_adds_nothing() -> None:
    data = cumulative([" a", " b"])[0] + event(2, " a b", [1, 2]) + event(2, " a b", [1, 2], "stop")
    reply = read(data)
    assert reply.text == " a b"
    assert reply.token_ids == (1, 2)
    assert reply.arrival_tokens == [1, 1]


@given(cuts=st.lists(st.integers(0, 2000), max_size=8))
def test_events_may_be_cut_anywhere(cuts: list[int]) -> None:
    data = b"".join(incremental([" a", " b", " ü"])) + b"data: [DONE]\n\n"
    reply = Reply(True, lambda at: None)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for at, (begin, end) in enumerate(pairwise(edges)):
        reply.feed(data[begin:end], float(at))
    assert reply.text == " a b ü"
    assert reply.finish_reason == "stop"
    assert reply.arrival_s == sorted(reply.arrival_s)


def test_a_token_has_the_time_of_the_read_that_completed_it() -> None:
    heard: list[float] = []
    reply = Reply(False, heard.append)
    first, second = incremental([" a", " b"])
    reply.feed(first + second[:10], 1.0)
    reply.feed(second[10:], 2.5)
    assert reply.arrival_s == heard == [1.0, 2.5]
    assert reply.read_at == 2.5


def test_comments_and_other_lines_are_passed_over() -> None:
    assert read(b": ping\n\n" + incremental([" a"])[0] + b"event: end\n\n").count == 1


def test_no_text_is_an_empty_text() -> None:
    assert whole_text([]) == whole_text([""]) == ""
