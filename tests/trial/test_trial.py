"""One trial on the stand-in server: launches that a change can cure are made again, everything else is a class."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sweeper.baseline import make_baseline
from sweeper.load.repeatability import repeatability
from sweeper.records import EndedBy, FailureClass, TrialState, by_load
from sweeper.server import failures
from sweeper.server.command import Address
from sweeper.server.prepare import prepare_engine
from sweeper.server.process import fresh_address
from sweeper.space import enumerate_space
from sweeper.study.surroundings import NO_CANDIDATE
from sweeper.study_file.reading import load_study_file
from sweeper.trial.order import TrialOrder, TrialPlan, Watch
from sweeper.trial.run import run_trial
from sweeper.workload.prompts import plan_prompts, read_conversations
from tests.command_line import servers
from tests.conftest import FAKE_ENGINE, WriteStudy


def run(write_study: WriteStudy, tmp_path: Path, fault: str, which: int = 1, **changes: Any) -> Any:
    """A trial of draft a whose server has a fault."""
    env = {"FAKE_FAULTS": json.dumps({"draft_a": fault}), "FAKE_STATE": str(tmp_path)}
    extra = changes.pop("extra_args", {})
    study = load_study_file(write_study(engine={"env": env, "extra_args": extra}, **changes))
    plan = TrialPlan(study, prepare_engine(study), plan_prompts(study, read_conversations(study)))
    candidate = enumerate_space(study.space).candidates[which]
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


def test_a_baseline_visits_its_loads_in_turns_and_all_visits_count(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    study = load_study_file(write_study(engine={"env": {"PYTHONPATH": str(FAKE_ENGINE)}}))
    plan = TrialPlan(study, prepare_engine(study), plan_prompts(study, read_conversations(study)))
    order = TrialOrder(NO_CANDIDATE, study.workload.loads, laps=2)
    phases: list[str] = []
    result = run_trial(plan, order, tmp_path / "server.log", Watch(phase=phases.append))
    assert [phase for phase in phases if phase.startswith("measuring")] == [
        "measuring concurrency 1",
        "measuring concurrency 4",
        "measuring concurrency 1, lap 2 of 2",
        "measuring concurrency 4, lap 2 of 2",
    ]
    for point in result.record.load_points:
        rows = [r for r in result.requests if r.load == str(point.load)]
        assert {r.lap for r in rows} == {0, 1}
        assert point.requests == len(rows)
    assert make_baseline({}, result).repeatability == repeatability(
        by_load(study.workload.loads, result.requests)
    )


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
        def next_address(node: str = "") -> Iterator[Address]:
            with fresh_address() as own:
                yield next(addresses, own)

        monkeypatch.setattr("sweeper.trial.launch.fresh_address", next_address)
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


def test_a_server_that_slows_down_halfway_is_called_unstable(write_study: WriteStudy, tmp_path: Path) -> None:
    measurement = {"min_requests": 32, "max_requests": 32}
    workload = {"concurrency": [1]}
    slowing = run(write_study, tmp_path, "slows_down", workload=workload, measurement=measurement)
    assert slowing.record.state is TrialState.COMPLETE
    [point] = slowing.record.load_points
    assert point.unstable
    assert point.drift.high < 0.9
    assert point.warmup.steady
    assert point.warmup.requests == 4
    assert point.ended_by is EndedBy.REQUESTS


def test_merged_chunks_and_text_after_the_end_are_named(write_study: WriteStudy, tmp_path: Path) -> None:
    path = write_study()  # creates the target
    (path.parent / "target" / "config.json").write_text(json.dumps({"eos_token_id": list(range(0, 2048, 4))}))
    record = run(write_study, tmp_path, "merged_chunks", workload={"max_new_tokens": 64}).record
    notes = [note.split(":")[0] for note in record.load_points[0].notes]
    assert notes == ["AFTER THE END", "MERGED CHUNKS"]


def test_outputs_that_nobody_could_use_are_not_timed(write_study: WriteStudy, tmp_path: Path) -> None:
    record = run(write_study, tmp_path, "one_token").record
    assert record.failure.kind is FailureClass.OUTPUT
    assert "2 of 2 outputs repeat one token, the first of them id 7" in record.failure.message
    assert record.load_points == ()


def test_an_algorithm_that_learns_is_measured_cold_and_warm(write_study: WriteStudy, tmp_path: Path) -> None:
    record = run(write_study, tmp_path, "", which=0, space={"grids": [{"algorithm": "NGRAM"}]}).record
    assert record.state is TrialState.COMPLETE
    assert [str(p.load) for p in record.load_points] == ["c=1", "c=1 warm", "c=4", "c=4 warm"]


def test_a_workload_that_samples_is_compared_on_greedy_requests_of_its_own(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    result = run(
        write_study, tmp_path, "", workload={"temperature": 0.8}, measurement={"quality_requests": 5}
    )
    assert result.record.state is TrialState.COMPLETE
    assert len(result.outputs) == 5
    assert not set(result.outputs) & {r.prompt for r in result.requests}


def test_simulated_acceptance_is_on_record(
    write_study: WriteStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SGLANG_SIMULATE_ACC_LEN", "3.5")
    assert run(write_study, tmp_path, "").record.simulated == "SGLANG_SIMULATE_ACC_LEN=3.5"


def test_open_loops_are_loads_of_their_own(write_study: WriteStudy, tmp_path: Path) -> None:
    record = run(write_study, tmp_path, "", workload={"concurrency": [1], "request_rates": [40.0]}).record
    assert [str(p.load) for p in record.load_points] == ["c=1", "40.0/s"]
    assert record.load_points[1].output_tok_s.value == pytest.approx(40 * 16, rel=0.6)


NVIDIA_SMI = """#!/bin/sh
[ -e "$FAKE_STATE/lost" ] && { echo "Unable to determine the device handle for GPU0: GPU is lost."; exit 15; }
echo "0, GPU-a, Fake H100, 81559, 570.1, 00000000:00:00.0"
"""


@pytest.fixture
def fake_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A GPU that is there until the file that this returns is made."""
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_STATE", str(tmp_path))
    return tmp_path / "lost"


def test_a_gpu_that_fell_off_is_not_the_configs_fault(
    write_study: WriteStudy, tmp_path: Path, fake_gpu: Path
) -> None:
    """The server is killed by what took its GPU away; the next trial there finds none at all."""
    study = load_study_file(
        write_study(engine={"device": "cuda", "env": {"FAKE_FAULTS": '{"draft_a": "hang"}'}})
    )
    plan = TrialPlan(study, prepare_engine(study), plan_prompts(study, read_conversations(study)))
    order = TrialOrder(enumerate_space(study.space).candidates[1], study.workload.loads)

    def lose_the_gpu(phase: str) -> None:
        if phase.startswith(("warming up", "measuring")) and not fake_gpu.exists():
            fake_gpu.touch()
            servers(str(tmp_path))[0].kill()

    crashed = run_trial(plan, order, tmp_path / "server.log", Watch(lose_the_gpu)).record
    absent = run_trial(plan, order, tmp_path / "server.log", Watch()).record
    for record in (crashed, absent):
        assert record.failure is not None
        assert record.failure.kind is FailureClass.GPU_LOST
        assert "GPU is lost" in record.failure.message
        assert failures.ADVICE[record.failure.kind].remedy is failures.Remedy.ELSEWHERE
    assert crashed.failure is not None
    assert "the server" in crashed.failure.message
    assert servers(str(tmp_path)) == []
