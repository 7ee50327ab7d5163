"""When requests are sent and when they are not: closed loop, open loop, conversations, and every way to end."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sweeper.config import Measurement, Workload
from sweeper.load.generator import LoadGenerator, LoadRun, Order
from sweeper.load.window import steady_window
from sweeper.records import EndedBy, Load, RequestRecord
from sweeper.server.command import Address
from sweeper.workload.conversation import History, Prompt
from tests.load.scripted_server import (
    HangupError,
    Say,
    cumulative,
    event,
    incremental,
    replying,
    scripted_server,
    text_alone_cumulative,
)

SHORT = incremental([" one", " two"])


def prompts(count: int) -> tuple[Prompt, ...]:
    return tuple(Prompt(f"p{i}", f"text {i}") for i in range(count))


def deliver(
    address: Address, order: Order, stop: Callable[[], bool] = lambda: False, **measurement: Any
) -> LoadRun:
    workload = Workload(prompts="-", max_new_tokens=64)
    return LoadGenerator(address, workload, Measurement(**measurement)).run(order, stop)


def test_a_closed_loop_keeps_its_concurrency_in_flight_and_the_deck_in_order() -> None:
    with scripted_server(replying(SHORT, 0.02)) as server:
        run = deliver(server.address, Order(prompts(20), Load(4)))
    assert server.most_in_flight == 4
    assert sorted(server.texts[:4]) == [f"text {i}" for i in range(4)]
    assert [r.prompt for r in run.requests] == [f"p{i}" for i in range(20)]
    assert [r.sent_s for r in run.requests] == sorted(r.sent_s for r in run.requests)
    assert run.ended_by is EndedBy.REQUESTS


def test_connections_are_used_again() -> None:
    with scripted_server(replying(SHORT, 0.005)) as server:
        deliver(server.address, Order(prompts(20), Load(4)))
    assert len(server.connections) == 4


def test_a_server_that_ends_its_connections_is_asked_on_new_ones() -> None:
    with scripted_server(replying(SHORT), close=True) as server:
        run = deliver(server.address, Order(prompts(6), Load(2)))
    assert [r.error for r in run.requests] == [None] * 6
    assert len(server.connections) == 6


def test_an_order_may_ask_for_shorter_outputs_than_the_workload() -> None:
    with scripted_server(replying(SHORT)) as server:
        deliver(server.address, Order(prompts(1), Load(1)))
        deliver(server.address, Order(prompts(1), Load(1), max_new_tokens=8))
    assert [body["sampling_params"]["max_new_tokens"] for body in server.bodies] == [64, 8]
    assert {body["stream"] for body in server.bodies} == {True}


def test_enough_is_asked_once_the_least_is_finished_and_ends_the_load() -> None:
    asked: list[tuple[int, float]] = []

    def enough(requests: Sequence[RequestRecord], now_s: float) -> bool:
        assert max(r.done_s for r in requests) <= now_s
        asked.append((len(requests), now_s))
        return len(asked) == 2

    with scripted_server(replying(SHORT, 0.02)) as server:
        run = deliver(server.address, Order(prompts(200), Load(2), least=6, enough=enough))
    assert run.ended_by is EndedBy.PRECISION
    assert asked[0][0] == 6
    assert asked[1][1] - asked[0][1] >= 0.25  # asking costs the tokens' times their truth
    assert len(run.requests) == asked[1][0] + 1  # the one in flight was finished
    assert steady_window(run.requests, run.load)[1] == pytest.approx(asked[1][1], abs=0.01)


def test_a_load_ends_after_its_seconds_but_not_before_its_least() -> None:
    with scripted_server(replying(SHORT, 0.02)) as server:
        some = deliver(server.address, Order(prompts(200), Load(2), max_seconds=0.3))
        least = deliver(server.address, Order(prompts(200), Load(2), least=12, max_seconds=0.01))
    assert some.ended_by is least.ended_by is EndedBy.SECONDS
    assert 10 <= len(some.requests) < 30
    assert max(r.sent_s for r in some.requests) <= 0.3
    assert 12 <= len(least.requests) <= 13


def test_what_enough_raises_ends_the_load() -> None:
    def enough(requests: Sequence[RequestRecord], now_s: float) -> bool:
        raise ZeroDivisionError

    with scripted_server(replying(SHORT, 0.01)) as server, pytest.raises(ZeroDivisionError):
        deliver(server.address, Order(prompts(200), Load(4), enough=enough))
    assert len(server.bodies) < 20


def test_an_empty_deck_is_an_empty_run() -> None:
    with scripted_server(replying(SHORT)) as server:
        run = deliver(server.address, Order((), Load(2)))
    assert run.requests == ()
    assert run.ended_by is EndedBy.REQUESTS


def test_an_open_loop_sends_at_its_poisson_times_however_slow_the_server_is() -> None:
    gaps = random.Random(5)
    scheduled = [0.0]
    for _ in range(39):
        scheduled.append(scheduled[-1] + gaps.expovariate(100))
    with scripted_server(replying(SHORT, 0.1)) as server:
        run = deliver(server.address, Order(prompts(40), Load(rate=100)), seed=5)
    assert [r.sent_s for r in run.requests] == pytest.approx(
        scheduled
    )  # what was planned, not what was managed
    came = [at - server.times[0] for at in sorted(server.times)]
    assert came == pytest.approx(scheduled, abs=0.05)
    assert server.most_in_flight > 10
    assert steady_window(run.requests, run.load) == (0.0, pytest.approx(scheduled[-1]))
    assert {r.load for r in run.requests} == {"100/s"}
    assert 0 <= run.late_s < 0.05


def test_an_open_loop_ends_by_precision_or_seconds_too() -> None:
    with scripted_server(replying(SHORT)) as server:
        order = Order(prompts(500), Load(rate=50), least=5, enough=lambda requests, _: len(requests) >= 5)
        precise = deliver(server.address, order)
        timed = deliver(server.address, Order(prompts(500), Load(rate=50), max_seconds=0.5))
        started = time.monotonic()
        slow = deliver(server.address, Order(prompts(500), Load(rate=0.01), max_seconds=0.1))
    assert (precise.ended_by, timed.ended_by) == (EndedBy.PRECISION, EndedBy.SECONDS)
    assert 5 <= len(precise.requests) < 30
    assert 10 < len(timed.requests) < 45
    assert len(slow.requests) == 1
    assert time.monotonic() - started < 5  # nobody waits 100 s for a request that is not to be sent


def test_an_idle_server_does_not_stall() -> None:
    def gap(seed: int) -> float:
        return random.Random(seed).expovariate(1)

    seed = next(seed for seed in range(1000) if 1.0 < gap(seed) < 1.2)
    with scripted_server(replying(SHORT)) as server:
        run = deliver(server.address, Order(prompts(2), Load(rate=1)), seed=seed, stall_timeout_s=0.4)
    assert run.stalled_s is None
    assert len(run.requests) == 2


@pytest.mark.parametrize("form", [incremental, cumulative, text_alone_cumulative])
@pytest.mark.parametrize("load", [Load(2), Load(rate=200)], ids=str)
def test_a_conversation_goes_on_with_the_replies_to_it(form: Callable[..., list[bytes]], load: Load) -> None:
    deck = tuple(Prompt(f"p{i}", f"hello {i}", ("<more>", "<bye>")) for i in range(2))
    with scripted_server(replying(form([" a", "", " b", " b"]))) as server:
        run = deliver(server.address, Order(deck, load))
    assert sorted(r.prompt for r in run.requests) == ["p0", "p0#2", "p0#3", "p1", "p1#2", "p1#3"]
    mine = [text for text in server.texts if "hello 1" in text]
    assert mine == ["hello 1", "hello 1 a b b<more>", "hello 1 a b b<more> a b b<bye>"]
    first, second = (next(r for r in run.requests if r.prompt == name) for name in ("p0", "p0#2"))
    assert second.sent_s >= first.done_s
    assert all(run.outputs[r.prompt] == (1, 2, 3, 4) for r in run.requests)


def test_a_conversation_writes_its_history_as_the_template_does() -> None:
    prompt = Prompt(
        "p", "<user>hi<bot>", ("<user>go on<bot>",), history=History(through="</think>", strips=True)
    )
    with scripted_server(replying(incremental(["hm", "</think>", "\n\n", "yes "]))) as server:
        deliver(server.address, Order((prompt,), Load(1)))
    assert server.texts[1] == "<user>hi<bot>yes<user>go on<bot>"


def test_a_failed_turn_ends_its_conversation_and_the_load() -> None:
    with scripted_server(replying([event(1, " a", [1]), event(1, "", [], "abort")])) as server:
        run = deliver(server.address, Order((Prompt("p", "hello", ("more",)), *prompts(5)), Load(1)))
    assert [r.prompt for r in run.requests] == ["p"]
    assert len(server.bodies) == 1


def test_no_follow_up_is_sent_once_the_load_has_ended() -> None:
    deck = tuple(Prompt(f"p{i}", "hello", ("more",) * 50) for i in range(2))
    with scripted_server(replying(SHORT, 0.02)) as server:
        run = deliver(server.address, Order(deck, Load(2), least=4, max_seconds=0.3))
    assert run.ended_by is EndedBy.SECONDS
    assert 4 <= len(run.requests) < 40


def test_a_request_that_takes_too_long_is_timed_out_and_dropped() -> None:
    async def script(say: Say, _: str) -> None:
        await say(event(1, " a", [1]))
        await asyncio.sleep(60)

    with scripted_server(script) as server:
        run = deliver(server.address, Order(prompts(3), Load(1)), request_timeout_s=0.3)
        time.sleep(0.2)
        assert server.dropped == 1  # the server knows that nobody listens any more
    assert [r.error for r in run.requests] == ["timed out after 0 s with 1 tokens"]


def test_stop_drops_what_is_in_flight_without_a_record() -> None:
    async def script(say: Say, _: str) -> None:
        await say(event(1, " a", [1]))
        await asyncio.sleep(60)

    with scripted_server(script) as server:
        run = deliver(server.address, Order(prompts(9), Load(3)), stop=lambda: server.in_flight == 3)
        time.sleep(0.2)
        assert server.dropped == 3
    assert run.requests == ()
    assert run.stalled_s is None


async def hang_up(say: Say, _: str) -> None:
    await say(event(1, " a", [1]))
    raise HangupError


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (replying([b'data: {"error": {"message": "no memory"}}\n\n']), "error in the stream: .*no memory"),
        (replying([event(1, ids=[1]), event(2, ids=[2], finish="abort")]), "aborted: .*abort"),
        (replying([event(1, ids=[1])]), "the stream ended without a finish reason"),
        (replying([]), "the stream ended without a finish reason"),
        (replying([b"data: {broken\n\n"]), "JSONDecodeError"),
        (replying([b'data: {"text": "a"}\n\n']), "a chunk without meta_info.completion_tokens: .*text"),
        (hang_up, "ConnectionError: the server closed the connection|ConnectionResetError"),
    ],
)
def test_a_reply_that_goes_wrong_is_an_error_by_name(script: Any, said: str) -> None:
    with scripted_server(script) as server:
        run = deliver(server.address, Order(prompts(5), Load(1)))
    assert len(run.requests) == 1
    assert run.outputs == {}
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(run.requests[0].error)


def test_a_wrong_key_is_an_http_error_not_a_result() -> None:
    with scripted_server(replying(SHORT)) as server:
        run = deliver(Address(server.address.port, "another key"), Order(prompts(2), Load(1)))
    assert [r.error for r in run.requests] == ["HTTP 401: Unauthorized"]


def test_what_fails_does_not_take_the_others_in_flight_with_it() -> None:
    async def script(say: Say, prompt: str) -> None:
        if prompt == "text 0":
            await say(event(1, finish="abort"))
        else:
            await replying(SHORT, 0.1)(say, prompt)

    with scripted_server(script) as server:
        run = deliver(server.address, Order(prompts(9), Load(3)))
    assert [bool(r.error) for r in run.requests] == [True, False, False]


def test_a_text_that_is_no_unicode_is_an_error_of_its_request() -> None:
    with scripted_server(replying(SHORT)) as server:
        run = deliver(server.address, Order((Prompt("p", "\ud800"),), Load(1)))
    assert "surrogates" in (run.requests[0].error or "")


def test_ids_that_an_old_server_lost_are_no_output() -> None:
    """Up to 0.5.9, deltas that a slow server merged are gone; a comparison must not take the rest for the output."""
    with scripted_server(replying([event(1, " a", [1]), event(3, " a b c", [3], "stop")])) as server:
        run = deliver(server.address, Order(prompts(1), Load(1)))
    assert run.requests[0].completion_tokens == 3
    assert run.requests[0].arrival_tokens == (1, 2)
    assert run.outputs == {}


def test_the_last_conversation_is_led_to_its_end() -> None:
    deck = (Prompt("long", "hello", ("more",) * 5), Prompt("short", "bye"))

    async def script(say: Say, prompt: str) -> None:
        # Two turns and more of the long one fit in, or there is no window between the first end and the last send.
        await replying(SHORT, 0.1 if prompt == "bye" else 0.02)(say, prompt)

    with scripted_server(script) as server:
        run = deliver(server.address, Order(deck, Load(2)))
        again = deliver(server.address, Order(deck, Load(rate=200)))
    assert len(run.requests) == len(again.requests) == 7
    assert run.ended_by is again.ended_by is EndedBy.REQUESTS
    [short] = [r for r in run.requests if r.prompt == "short"]
    assert steady_window(run.requests, run.load)[1] <= short.done_s  # from then on one worker is idle
