"""HTTP/1.1 responses, cut up in every way that a network may cut them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.load.response import Response

BODY = [b"data: one\n\n", b"data: \r\n0\r\n\r\n", b"x" * 300]
HEAD = b"HTTP/1.1 200 OK\r\nServer: uvicorn\r\n"
CHUNKS = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in BODY)
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + CHUNKS


def read(data: bytes, cuts: list[int] | None = None) -> tuple[Response, bytes]:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts or []), len(data)]
    response, body = Response(), b""
    for begin, end in pairwise(edges):
        body += b"".join(response.feed(data[begin:end]))
    return response, body


@given(cuts=st.lists(st.integers(0, 500), max_size=10))
def test_a_chunked_body_is_whole_however_it_is_cut(cuts: list[int]) -> None:
    response, body = read(CHUNKED + b"0\r\n\r\n", cuts)
    assert body == b"".join(BODY)
    assert (response.status, response.complete, response.keep_alive) == (200, True, True)


def test_every_chunk_is_a_piece_of_its_own() -> None:
    assert Response().feed(CHUNKED) == BODY


def test_extensions_and_trailers_are_passed_over() -> None:
    response, body = read(HEAD + b"transfer-encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nx: y\r\n\r\n")
    assert (body, response.complete) == (b"abc", True)


@pytest.mark.parametrize("end", [b"", b"0", b"0\r\n", b"0\r\nx: y\r\n"])
def test_a_chunked_body_without_its_end_is_incomplete_even_when_the_connection_ends(end: bytes) -> None:
    response, _ = read(CHUNKED + end)
    response.connection_ended()
    assert not response.complete


@given(cuts=st.lists(st.integers(0, 100), max_size=5))
def test_a_body_may_have_a_length(cuts: list[int]) -> None:
    response, body = read(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 12\r\n\r\nUnauthorized", cuts)
    assert (response.status, body, response.complete) == (401, b"Unauthorized", True)


def test_a_short_body_is_incomplete() -> None:
    response, _ = read(HEAD + b"Content-Length: 12\r\n\r\nUnauth")
    response.connection_ended()
    assert not response.complete


def test_a_body_may_end_with_its_connection() -> None:
    response, body = read(HEAD + b"\r\nall of it")
    assert not response.complete
    response.connection_ended()
    assert (body, response.complete) == (b"all of it", True)


@pytest.mark.parametrize("said", [b"Connection: close\r\n", b"connection: Close\r\n"])
def test_a_server_may_refuse_to_keep_the_connection(said: bytes) -> None:
    assert not read(HEAD + said + b"Content-Length: 0\r\n\r\n")[0].keep_alive
    assert not read(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n")[0].keep_alive


def test_an_empty_body_is_complete_at_once() -> None:
    assert read(HEAD + b"Content-Length: 0\r\n\r\n")[0].complete


def test_informational_responses_come_before_the_real_one() -> None:
    response, _ = read(b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED)
    assert response.status == 200


@pytest.mark.parametrize(
    "data", [b"SSH-2.0-OpenSSH\r\n", b"\x16\x03\x01", b"HTTP/1.1 200 OK\r\n" + b"x" * 70000]
)
def test_what_is_no_http_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="no HTTP/1 response"):
        Response().feed(data)


def test_a_chunk_without_a_size_is_refused() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        read(HEAD + b"transfer-encoding: chunked\r\n\r\nno size\r\n")
