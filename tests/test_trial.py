"""One trial on the stand-in server: launches that a change can cure are made again, everything else is a class."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sweeper.records import FailureClass, TrialState
from sweeper.server.command import Address
from sweeper.server.prepare import prepare_engine
from sweeper.server.process import fresh_address
from sweeper.space import enumerate_space
from sweeper.study_file import load_study_file
from sweeper.trial import run_trial
from sweeper.trial_order import TrialOrder, TrialPlan, Watch
from sweeper.workload.prompts import plan_prompts, read_conversations
from tests.command_line import servers
from tests.conftest import WriteStudy


def run(write_study: WriteStudy, tmp_path: Path, fault: str, **changes: Any) -> Any:
    """A trial of draft a whose server has a fault."""
    env = {"FAKE_FAULTS": json.dumps({"draft_a": fault}), "FAKE_STATE": str(tmp_path)}
    extra = changes.pop("extra_args", {})
    study = load_study_file(write_study(engine={"env": env, "extra_args": extra}, **changes))
    plan = TrialPlan(study, prepare_engine(study), plan_prompts(study, read_conversations(study)))
    candidate = enumerate_space(study.space).candidates[1]
    result = run_trial(plan, TrialOrder(candidate, study.workload.loads), tmp_path / "server.log", Watch())
    assert servers(str(tmp_path)) == []
    return result


def test_a_healthy_trial_says_what_was_pinned_and_what_the_server_runs_with(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    result = run(write_study, tmp_path, "")
    record = result.record
    assert record.state is TrialState.COMPLETE
    assert {pin.flag for pin in record.pins} >= {"max-running-requests", "random-seed", "disable-radix-cache"}
    assert record.engine["max_running_requests"] == 4
    assert record.attempts == ()
    assert result.leak is None


def test_out_of_memory_is_tried_with_a_smaller_share(write_study: WriteStudy, tmp_path: Path) -> None:
    record = run(write_study, tmp_path, "out_of_memory", extra_args={"mem-fraction-static": 0.88}).record
    assert record.state is TrialState.COMPLETE
    assert [a.failure.kind for a in record.attempts] == [FailureClass.OOM_RUNTIME] * 2
    assert [a.change for a in record.attempts] == [
        "mem-fraction-static 0.88 -> 0.83",
        "mem-fraction-static 0.83 -> 0.78",
    ]
    assert "0.78" in record.command


def test_a_taken_port_is_changed(write_study: WriteStudy, tmp_path: Path) -> None:
    record = run(write_study, tmp_path, "port_taken").record
    assert record.state is TrialState.COMPLETE
    assert [a.failure.kind for a in record.attempts] == [FailureClass.PORT]
    assert record.attempts[0].change == "launched again on other ports"


def test_a_port_that_stays_taken_is_left_alone(
    write_study: WriteStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody really listens there, and goes on: no leak of ours, and the next launch takes another port."""
    with socket.socket() as other, fresh_address() as taken:
        other.bind((taken.host, taken.port))
        other.listen()
        addresses = iter([taken])

        @contextmanager
        def next_address() -> Iterator[Address]:
            with fresh_address() as own:
                yield next(addresses, own)

        monkeypatch.setattr("sweeper.trial.fresh_address", next_address)
        result = run(write_study, tmp_path, "")
    assert [a.failure.kind for a in result.record.attempts] == [FailureClass.PORT]
    assert result.record.state is TrialState.COMPLETE
    assert result.leak is None


def test_an_incompatible_draft_is_not_launched_again(write_study: WriteStudy, tmp_path: Path) -> None:
    record = run(write_study, tmp_path, "crash_at_start").record
    assert record.failure.kind is FailureClass.DRAFT_INCOMPATIBLE
    assert record.attempts == ()


def test_a_hang_is_named_with_the_stacks_of_its_processes(write_study: WriteStudy, tmp_path: Path) -> None:
    result = run(write_study, tmp_path, "hang", measurement={"stall_timeout_s": 2})
    assert result.record.failure.kind is FailureClass.HANG
    assert "no token from any request at concurrency 1 for 2 s" in result.record.failure.message
    assert "== stacks of the hanging server's processes ==" in result.log


def test_a_leak_keeps_what_was_measured(
    write_study: WriteStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.server.process.gpu_memory_used", lambda gpus: {"0": 0})
    monkeypatch.setattr("sweeper.server.gpu_memory.gpu_memory_used", lambda gpus: {"0": 2**31})
    monkeypatch.setattr("sweeper.server.process.GPU_GRACE_S", 0.1)
    result = run(write_study, tmp_path, "")
    assert result.record.state is TrialState.COMPLETE
    assert "2.0 GiB on GPU 0" in result.leak
