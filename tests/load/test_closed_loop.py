"""The load generator and its statistics against a synthetic server with known rates and faults."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sweeper.config import Measurement, Workload
from sweeper.load.closed_loop import LoadGenerator, LoadRun
from sweeper.load.statistics import FailedLoadError, load_point
from sweeper.server.command import Address
from sweeper.server.process import ServerProcess, fresh_address
from sweeper.workload.prompts import Prompt
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
    return generator.run([Prompt(f"p{i}", f"prompt {i}") for i in range(requests)], concurrency)


def test_a_load_point_accounts_for_every_token_and_round(tmp_path: Path) -> None:
    with fake_server(tmp_path, *CHAIN) as address:
        run = run_load(address, requests=24, concurrency=4)
    point = load_point(run, speculates=True)
    assert point.requests == 24
    assert sum(r.completion_tokens for r in run.requests) == 24 * TOKENS == sum(n for _, n in run.arrivals)
    rounds = sum(r.verify_rounds or 0 for r in run.requests)
    assert sum(point.histogram) == rounds
    assert point.sources == {
        "accept_length": "(completion_tokens - 1) / spec_verify_ct",
        "accepted_drafts": "spec_num_correct_drafts",
        "histogram": "spec_correct_drafts_histogram",
    }
    assert point.accept_length.value == pytest.approx(24 * (TOKENS - 1) / rounds)
    assert 1 < point.accept_length.low < point.accept_length.value < point.accept_length.high < 4
    assert all(len(run.outputs[r.prompt]) == TOKENS for r in run.requests)


def test_without_speculation_the_accept_length_is_one_and_a_step_gives_a_token(tmp_path: Path) -> None:
    with fake_server(tmp_path) as address:
        run = run_load(address, requests=16, concurrency=2)
    point = load_point(run, speculates=False)
    assert point.accept_length.value == 1
    assert point.step_time_s == pytest.approx(point.tpot_s.mean, rel=0.01)
    assert point.output_tok_s.value == pytest.approx(2 / point.step_time_s, rel=0.15)


def test_ramp_and_drain_lie_outside_the_window(tmp_path: Path) -> None:
    with fake_server(tmp_path, *CHAIN) as address:
        run = run_load(address, requests=32, concurrency=8)
    start, end = run.window
    assert start == min(r.done_s for r in run.requests)
    in_flight_at = [sum(r.sent_s <= t <= r.done_s for r in run.requests) for t in (start + 1e-4, end - 1e-4)]
    assert min(in_flight_at) >= 7  # one request may just be changing


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("error_in_stream", "error in the stream: .*planted error"),
        ("abort", "aborted: .*planted abort"),
        ("no_counters", "without speculation counters"),
        ("hang", "no token from any request for 1 s"),
        ("crash_while_serving", "requests failed"),
    ],
)
def test_faults_fail_the_load_point_by_name(tmp_path: Path, fault: str, said: str) -> None:
    with fake_server(tmp_path, *CHAIN, fault=fault) as address:
        run = run_load(address, requests=8, concurrency=2, stall_timeout_s=1)
    with pytest.raises(FailedLoadError, match=said):
        load_point(run, speculates=True)


def test_a_wrong_key_is_an_http_error_not_a_result(tmp_path: Path) -> None:
    with fake_server(tmp_path, *CHAIN) as address:
        run = run_load(Address(address.port + 1, "x"), requests=2, concurrency=1)
    assert run.requests[0].error
    assert len(run.requests) == 1  # nothing further is sent after a failure
