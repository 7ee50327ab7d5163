"""Control requests against servers of old and new releases, and against wrong ones."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from sweeper.server.client import GenerationError, ServerClient, ServerUnreachableError
from sweeper.server.command import Address
from sweeper.speculation import SpeculationConfig

KEY = "the-key-of-this-launch"
Answer = tuple[int, Any]


@contextmanager
def server(routes: dict[str, list[Answer]]) -> Iterator[tuple[ServerClient, list[tuple[str, Any]]]]:
    """Answers each route's answers in turn, the last one for ever; keeps what was asked."""
    asked: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            route = self.path.strip("/")
            asked.append((route, body))
            assert self.headers["Authorization"] == f"Bearer {KEY}"
            answers = routes.get(route, [(404, "not found")])
            status, content = answers.pop(0) if len(answers) > 1 else answers[0]
            data = (content if isinstance(content, str) else json.dumps(content)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *words: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    try:
        yield ServerClient(Address(http.server_port, KEY)), asked
    finally:
        http.shutdown()
        http.server_close()


def test_a_new_release_is_ready_by_its_own_word() -> None:
    with server({"server_info": [(200, {"api_key": KEY})], "ready": [(503, ""), (200, "")]}) as (
        client,
        asked,
    ):
        assert not client.is_ready()
        assert client.is_ready()
    assert {route for route, _ in asked} == {"server_info", "ready"}  # /health would generate a token


def test_an_old_release_is_asked_under_its_old_names() -> None:
    with server({"get_server_info": [(200, {"api_key": KEY})], "health": [(200, "")]}) as (client, asked):
        assert client.is_ready()
    assert [route for route, _ in asked] == ["server_info", "get_server_info", "ready", "health"]


@pytest.mark.parametrize("info", [{"api_key": "another launch's"}, {}], ids=["another key", "no key"])
def test_another_server_on_the_port_is_not_ours(info: dict[str, str]) -> None:
    with server({"server_info": [(200, info)], "ready": [(200, "")]}) as (client, _):
        assert not client.is_ready()


@pytest.mark.parametrize(
    "answer", [(401, '{"error": "Unauthorized"}'), (500, "oops"), (200, []), (200, "<html>")]
)
def test_a_server_that_tells_nothing_of_itself_is_unreachable(answer: Answer) -> None:
    with server({"server_info": [answer]}) as (client, _), pytest.raises(ServerUnreachableError):
        client.info()


def test_the_schedulers_own_view_is_the_truth() -> None:
    asked_for = SpeculationConfig("NEXTN", "d", 3, 1, 16, (("x", 1),))
    state = {
        "speculative_algorithm": "EAGLE",
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 4,
        "attention_backend": "fa3",
        "cuda_graph_config": {"decode": {"max_bs": 16}},
    }
    top = {"version": "0.5.23", "attention_backend": None, "page_size": 1, "internal_states": [state]}
    with server({"server_info": [(200, top)]}) as (client, _):
        info = client.info()
    assert info.version == "0.5.23"
    assert info.effective(asked_for) == SpeculationConfig("NEXTN", "d", 3, 1, 4, (("x", 1),))
    assert info.engine == {"attention_backend": "fa3", "page_size": 1, "cuda_graph_max_bs_decode": 16}


def test_a_busy_cache_is_flushed_once_it_is_idle() -> None:
    with server({"flush_cache": [(400, "pending"), (400, "pending"), (200, "")]}) as (client, asked):
        client.flush_cache()
    assert len(asked) == 3


def test_aborting_names_no_request_and_survives_a_dead_server() -> None:
    with server({"abort_request": [(200, "")]}) as (client, asked):
        client.abort_all()
    assert asked == [("abort_request", {"rid": "", "abort_all": True})]
    client.abort_all()  # nobody is there any more


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((400, {"error": "unknown field `x`"}), "HTTP 400.*unknown field"),
        ((200, {"error": {"message": "planted"}}), "planted"),
        ((200, "no json"), "no json"),
        ((200, {"meta_info": {"finish_reason": {"type": "abort", "message": "why"}}}), "aborted: why"),
    ],
)
def test_a_reply_without_a_completion_is_an_error(answer: Answer, said: str) -> None:
    with server({"generate": [answer]}) as (client, _), pytest.raises(GenerationError, match=said):
        client.generate("x", 4, 5)


def test_the_gap_of_the_two_best_tokens_is_read_where_the_outputs_part() -> None:
    best = [[[-0.1, 5, None], [-2.6, 6, None]], [[-0.5, 7, None], [-0.6, 8, None]]]
    meta = {"finish_reason": {"type": "length"}, "output_top_logprobs": best}
    with server({"generate": [(200, {"output_ids": [5, 7], "meta_info": meta})]}) as (client, asked):
        assert client.top_two_gap("prompt", (5,), 5) == pytest.approx(0.1)
        assert client.top_two_gap("prompt", (9,), 5) is None  # it does not come by there again
    assert asked[0][1]["top_logprobs_num"] == 2
    assert asked[0][1]["sampling_params"]["max_new_tokens"] == 2
