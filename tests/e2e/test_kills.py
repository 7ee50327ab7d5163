"""Processes of a serving SGLang are killed and stopped under a real Ray actor, which goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import ray

from actors.pool import ServerPool
from sweeper.config import StudyConfig
from sweeper.records import FailureClass, Load, TrialResult, TrialState
from sweeper.server.prepare import look_up
from sweeper.server.process import session_members
from sweeper.study.surroundings import NO_CANDIDATE
from sweeper.trial.order import TrialOrder, TrialPlan
from sweeper.workload.prompts import plan_prompts, read_conversations
from tests.command_line import scheduler_of, servers

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

CLASSIFIED_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def plan(testbed: Path) -> TrialPlan:
    study = StudyConfig.model_validate(
        {
            "study": "kills",
            "engine": {"model": str(testbed / "target"), "device": "cpu", "start_timeout_s": 240},
            "space": {"grids": [{"algorithm": "NGRAM"}]},
            "workload": {
                "prompts": str(testbed / "prompts.jsonl"),
                "concurrency": [1],
                "max_new_tokens": 100,
                "ignore_eos": True,
            },
            "measurement": {
                "min_requests": 4,
                "rounds": 2,
                "max_requests": 4,
                "warmup_tolerance": 9,
                "stall_timeout_s": 25,
            },
            "resources": {"max_servers": 1},
        }
    )
    return TrialPlan(study, look_up(study), plan_prompts(study, read_conversations(study)))


@pytest.fixture(scope="module")
def pool(plan: TrialPlan) -> Iterator[ServerPool]:
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    with ServerPool(plan) as found:
        yield found
    ray.shutdown()


def serving(pool: ServerPool, plan: TrialPlan, tag: str) -> psutil.Process:
    """Start a trial and return its launcher once requests run."""
    pool.start(tag, TrialOrder(NO_CANDIDATE, (Load(1),)))
    deadline = time.monotonic() + 240
    while not pool.phases().get(tag, "").startswith(("warming up", "measuring")):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    time.sleep(2)
    [server] = servers(plan.study.engine.model)
    return server


def result(pool: ServerPool, tag: str, timeout_s: float) -> TrialResult:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        for found, outcome in pool.wait(1.0):
            assert found == tag
            return outcome
    raise AssertionError(f"trial {tag} did not end within {timeout_s:.0f} s")


def actor_of(server: psutil.Process) -> int:
    guardian = server.parent()
    assert guardian is not None
    return guardian.ppid()


def test_stopped_and_lost_processes_are_classified_and_the_actor_goes_on(
    pool: ServerPool, plan: TrialPlan
) -> None:
    """A killed scheduler is in test_failure_classes, a killed launcher in test_real_sglang."""
    server = serving(pool, plan, "stopped scheduler")
    actor, session = actor_of(server), server.ppid()
    scheduler_of(server).send_signal(signal.SIGSTOP)
    outcome = result(pool, "stopped scheduler", CLASSIFIED_WITHIN_S)
    assert outcome.record.failure is not None
    assert outcome.record.failure.kind is FailureClass.HANG
    assert "stacks of the hanging server's processes" in outcome.log
    assert session_members(session) == []

    pool.start("healthy", TrialOrder(NO_CANDIDATE, (Load(1),)))
    assert result(pool, "healthy", 400).record.state is TrialState.COMPLETE

    server = serving(pool, plan, "killed actor")
    assert actor_of(server) == actor
    session = server.ppid()
    os.kill(actor, signal.SIGKILL)
    failure = result(pool, "killed actor", CLASSIFIED_WITHIN_S).record.failure
    assert failure is not None
    assert failure.kind is FailureClass.LOST
    deadline = time.monotonic() + 10
    while session_members(session):
        assert time.monotonic() < deadline
        time.sleep(0.2)
