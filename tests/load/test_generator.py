"""The load generator against the stand-in engine: what it counts, and every fault by its name."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sweeper.config import Measurement, Workload
from sweeper.load.generator import LoadGenerator, LoadRun, Order
from sweeper.load.window import steady_window
from sweeper.records import EndedBy, Load
from sweeper.server.command import Address
from sweeper.server.process import ServerProcess, fresh_address
from sweeper.workload.conversation import Prompt
from tests.conftest import FAKE_ENGINE

TOKENS = 32
CHAIN = ["--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]


@contextmanager
def fake_server(tmp_path: Path, *flags: str, fault: str = "") -> Iterator[Address]:
    environment = {**os.environ, "PYTHONPATH": str(FAKE_ENGINE), "FAKE_FAULTS": f'{{"draft": "{fault}"}}'}
    with fresh_address() as address:
        command = [sys.executable, "-m", "sglang.launch_server", *address.arguments()]
        command += ["--speculative-draft-model-path", "draft", *flags]
        with ServerProcess(command, environment, address, tmp_path / "log") as server:
            server.wait_until_ready(30)
            yield address


def run_load(address: Address, requests: int, concurrency: int, stall_timeout_s: float = 30) -> LoadRun:
    workload = Workload(prompts="-", max_new_tokens=TOKENS)
    generator = LoadGenerator(address, workload, Measurement(stall_timeout_s=stall_timeout_s))
    prompts = tuple(Prompt(f"p{i}", f"prompt {i}") for i in range(requests))
    return generator.run(Order(prompts, Load(concurrency), least=requests))


def test_every_token_and_every_round_is_accounted_for(tmp_path: Path) -> None:
    with fake_server(tmp_path, *CHAIN) as address:
        run = run_load(address, requests=24, concurrency=4)
    assert [r.prompt for r in run.requests] == [f"p{i}" for i in range(24)]
    assert run.ended_by is EndedBy.REQUESTS
    assert {r.load for r in run.requests} == {"c=4"}
    assert {r.finish_reason for r in run.requests} == {"length"}
    for r in run.requests:
        assert r.completion_tokens == TOKENS == sum(r.arrival_tokens) == len(run.outputs[r.prompt])
        assert r.sent_s < r.arrival_s[0] == r.first_token_s
        assert r.arrival_s == tuple(sorted(r.arrival_s))
        assert r.arrival_s[-1] <= r.done_s
        assert r.verify_rounds == sum(r.histogram or ()) == len(r.arrival_tokens) - 1
        assert r.accepted_drafts == sum(i * count for i, count in enumerate(r.histogram or ()))
    assert run.sources == {
        "accept_length": "(completion_tokens - 1) / spec_verify_ct",
        "accepted_drafts": "spec_num_correct_drafts",
        "histogram": "spec_correct_drafts_histogram",
    }
    assert run.cpu_s > 0


def test_without_speculation_there_are_no_counters(tmp_path: Path) -> None:
    with fake_server(tmp_path) as address:
        run = run_load(address, requests=8, concurrency=2)
    assert {(r.verify_rounds, r.accepted_drafts, r.histogram, r.error) for r in run.requests} == {(None,) * 4}
    assert all(set(r.arrival_tokens) == {1} for r in run.requests)
    assert run.sources == {}


def test_ramp_and_drain_lie_outside_the_window(tmp_path: Path) -> None:
    with fake_server(tmp_path, *CHAIN) as address:
        run = run_load(address, requests=32, concurrency=8)
    start, end = steady_window(run.requests, run.load)
    assert start == min(r.done_s for r in run.requests)
    assert {start, end} < {r.done_s for r in run.requests}
    for t in (start, end):  # the completions that begin and end it each free one of eight requests in flight
        assert sum(r.sent_s < t <= r.done_s for r in run.requests) == 8


def test_merged_chunks_lose_neither_tokens_nor_rounds(tmp_path: Path) -> None:
    with fake_server(tmp_path, *CHAIN) as address:
        apart = run_load(address, requests=4, concurrency=2)
    with fake_server(tmp_path, *CHAIN, fault="merged_chunks") as address:
        merged = run_load(address, requests=4, concurrency=2)
    assert merged.outputs == apart.outputs
    assert [r.histogram for r in merged.requests] == [r.histogram for r in apart.requests]
    assert all(len(r.arrival_s) < (r.verify_rounds or 0) for r in merged.requests)
    assert all(sum(r.arrival_tokens) == TOKENS for r in merged.requests)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("error_in_stream", "error in the stream: .*planted error"),
        ("abort", "aborted: .*planted abort"),
        ("no_finish", "the stream ended without a finish reason"),
        ("crash_while_serving", "the server closed the connection before the end of its reply|reset by peer"),
    ],
)
def test_a_fault_is_an_error_of_its_request_by_name(tmp_path: Path, fault: str, said: str) -> None:
    with fake_server(tmp_path, *CHAIN, fault=fault) as address:
        run = run_load(address, requests=8, concurrency=2)
    failed = [r for r in run.requests if r.error]
    assert len(failed) == len(run.requests) == 2  # nothing further was sent
    for r in failed:
        assert re.search(said, r.error or "")
    assert run.outputs == {}


def test_missing_counters_are_missing_not_zero(tmp_path: Path) -> None:
    with fake_server(tmp_path, *CHAIN, fault="no_counters") as address:
        run = run_load(address, requests=2, concurrency=2)
    assert {(r.error, r.verify_rounds, r.histogram) for r in run.requests} == {(None, None, None)}


def test_a_server_that_sends_nothing_to_anyone_hangs(tmp_path: Path) -> None:
    with fake_server(tmp_path, *CHAIN, fault="hang") as address:
        run = run_load(address, requests=8, concurrency=2, stall_timeout_s=1)
    assert run.stalled_s is not None
    assert 1 <= run.stalled_s < 2
    assert run.requests == ()


def test_a_server_that_slows_down_is_slow_in_the_records(tmp_path: Path) -> None:
    with fake_server(tmp_path, *CHAIN, fault="slows_down") as address:
        run = run_load(address, requests=40, concurrency=2)
    early, late = ([r.e2e_s for r in part] for part in (run.requests[:20], run.requests[28:]))
    assert sum(late) / len(late) > 1.5 * sum(early) / len(early)


def test_nobody_listening_is_an_error_of_the_first_request(tmp_path: Path) -> None:
    with fresh_address() as address:
        run = run_load(Address(address.port, "x"), requests=2, concurrency=1)
    assert "refused" in (run.requests[0].error or "").lower()
    assert len(run.requests) == 1
