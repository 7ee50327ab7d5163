"""Server actors on a real Ray with fake GPUs: placement, parallel trials, loss of an actor."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
import ray

from actors.pool import ServerPool
from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.records import FailureClass, TrialState
from sweeper.server.setup import EngineSetup, shared_pins
from sweeper.space import enumerate_space
from sweeper.study.surroundings import NO_CANDIDATE
from sweeper.study_file.reading import load_study_file
from sweeper.trial.order import TrialOrder, TrialPlan
from sweeper.workload.prompts import plan_prompts, read_conversations
from tests.command_line import servers
from tests.conftest import WriteStudy

pytestmark = pytest.mark.xdist_group("one Ray")


@pytest.fixture(scope="module", autouse=True)
def two_fake_gpus() -> Iterator[None]:
    ray.init(address="local", num_cpus=4, num_gpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def plan_of(study: StudyConfig) -> TrialPlan:
    return TrialPlan(
        study,
        EngineSetup("0.5.23", pins=shared_pins(study, "0.5.23")),
        plan_prompts(study, read_conversations(study)),
    )


def collect(pool: ServerPool, count: int, timeout_s: float = 90) -> dict[str, object]:
    results: dict[str, object] = {}
    deadline = time.monotonic() + timeout_s
    while len(results) < count and time.monotonic() < deadline:
        results.update(pool.wait(1.0))
    assert len(results) == count
    return results


def test_as_many_servers_as_gpus_and_all_of_them_busy(write_study: WriteStudy) -> None:
    study = load_study_file(write_study(resources={"gpus_per_server": 1}))
    candidates = enumerate_space(study.space).candidates
    with ServerPool(plan_of(study)) as pool:
        assert pool.size() == 2
        pool.start("one", TrialOrder(candidates[0], study.workload.loads))
        pool.start("two", TrialOrder(candidates[1], study.workload.loads))
        assert pool.idle() == []
        assert set(pool.phases()) == {"one", "two"}
        results = collect(pool, 2)
    records = {tag: result.record for tag, result in results.items()}  # type: ignore[attr-defined]
    assert all(record.state is TrialState.COMPLETE for record in records.values()), records
    assert records["one"].effective == candidates[0].effective
    assert records["two"].effective == candidates[1].effective


def test_a_request_that_no_node_can_hold_names_what_there_is(write_study: WriteStudy) -> None:
    study = load_study_file(write_study(resources={"gpus_per_server": 8}))
    with pytest.raises(SweeperError, match="needs 8 GPUs and 1 CPUs on one node.*2 GPUs and 4 CPUs"):
        ServerPool(plan_of(study))


def test_a_killed_actor_is_a_lost_trial_and_its_server_is_gone(write_study: WriteStudy) -> None:
    study = load_study_file(
        write_study(resources={"max_servers": 1}, engine={"env": {"FAKE_FAULTS": '{"": "hang"}'}})
    )
    with ServerPool(plan_of(study)) as pool:
        pool.start("doomed", TrialOrder(NO_CANDIDATE, study.workload.loads))
        deadline = time.monotonic() + 60
        while "measuring" not in pool.phases().get("doomed", "") and "warming" not in pool.phases().get(
            "doomed", ""
        ):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        [server] = servers(study.engine.model)
        guardian = server.parent()
        actor = guardian.parent() if guardian else None
        assert actor is not None
        os.kill(actor.pid, signal.SIGKILL)
        record = collect(pool, 1)["doomed"].record  # type: ignore[attr-defined]
        assert record.failure.kind is FailureClass.LOST
        server.wait(timeout=10)
        assert servers(study.engine.model) == []
        while not pool.idle():  # the replacement
            assert time.monotonic() < deadline
            time.sleep(0.2)
