"""One SGLang on two nodes: two launchers over gloo, under two raylets of this machine, in one trial."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from actors.cluster import shape_that_fits
from actors.pool import ServerPool
from sweeper.config import StudyConfig
from sweeper.records import FailureClass, Load, TrialState
from sweeper.server.prepare import look_up
from sweeper.server.process import session_members
from sweeper.study.surroundings import NO_CANDIDATE
from sweeper.trial.order import TrialOrder, TrialPlan
from sweeper.workload.prompts import plan_prompts, read_conversations
from tests.actors.nodes import Nodes, add, idle, results, until
from tests.command_line import servers, value_of

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

NODE = {"num_cpus": 1}
START_S = 240.0
CLASSIFIED_WITHIN_S = 60.0


@pytest.fixture(scope="module")
def study(testbed: Path) -> StudyConfig:
    return StudyConfig.model_validate(
        {
            "study": "two-ranks",
            "engine": {
                "model": str(testbed / "target"),
                "device": "cpu",
                "tensor_parallel": 2,
                "start_timeout_s": START_S,
                "env": {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"},
            },
            "space": {"grids": [{"algorithm": "NGRAM"}]},
            "workload": {
                "prompts": str(testbed / "prompts.jsonl"),
                "concurrency": [1],
                "max_new_tokens": 24,
                "ignore_eos": True,
            },
            "measurement": {"min_requests": 4, "rounds": 2, "max_requests": 4, "warmup_tolerance": 9},
            "resources": {"nodes_per_server": 2, "max_servers": 1},
        }
    )


@pytest.fixture(scope="module")
def setup(study: StudyConfig) -> TrialPlan:
    return TrialPlan(study, look_up(study), plan_prompts(study, read_conversations(study)))


def over_nodes(plan: TrialPlan) -> TrialPlan:
    shape = shape_that_fits(plan.study, print)
    return replace(plan, setup=replace(plan.setup, nodes=shape.nodes))


def ranks(plan: TrialPlan) -> dict[int, psutil.Process]:
    """The launchers that run, by rank."""
    found = servers(plan.study.engine.model, "--nnodes 2")
    return {int(value_of("--node-rank", p)): p for p in found}


def serving(pool: ServerPool, plan: TrialPlan, tag: str) -> dict[int, psutil.Process]:
    """Start a trial and return its launchers once requests run."""
    pool.start(tag, TrialOrder(NO_CANDIDATE, (Load(1),)))
    until(lambda: pool.phases().get(tag, "").startswith(("warming up", "measuring")), "a load", START_S)
    found = ranks(plan)
    assert found.keys() == {0, 1}
    return found


def test_both_ranks_serve_one_trial_and_end_together(setup: TrialPlan, nodes: Nodes) -> None:
    with nodes(NODE, NODE), ServerPool(plan := over_nodes(setup)) as pool:
        launchers = serving(pool, plan, "whole")
        sessions = [launcher.ppid() for launcher in launchers.values()]
        assert len(set(sessions)) == 2
        [(_, done)] = results(pool, 1, 200).items()
        assert done.record.state is TrialState.COMPLETE, done.record.failure
        assert done.leak is None
        assert done.record.load_points[0].output_tok_s.value > 1
        assert done.record.hardware is not None
        assert done.record.hardware.nodes == 2
        assert "== rank 1 on" in done.log
        assert [session_members(session) for session in sessions] == [[], []]


def test_one_killed_rank_takes_the_other_with_it_and_the_actors_go_on(setup: TrialPlan, nodes: Nodes) -> None:
    with nodes(NODE, NODE), ServerPool(plan := over_nodes(setup)) as pool:
        launchers = serving(pool, plan, "killed rank")
        sessions = [launcher.ppid() for launcher in launchers.values()]
        launchers[1].kill()
        [(_, dead)] = results(pool, 1, CLASSIFIED_WITHIN_S).items()
        assert dead.record.failure is not None
        assert dead.record.failure.kind is FailureClass.CRASH
        assert dead.leak is None
        assert [session_members(session) for session in sessions] == [[], []]
        assert len(idle(pool, 1)) == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_the_loss_of_either_node_is_one_lost_trial_and_the_retry_runs(
    setup: TrialPlan, rank: int, nodes: Nodes
) -> None:
    with nodes(NODE, NODE) as cluster, ServerPool(plan := over_nodes(setup)) as pool:
        launchers = serving(pool, plan, "lost")
        sessions = [launcher.ppid() for launcher in launchers.values()]
        raylet = next(p.pid for p in launchers[rank].parents() if p.name() == "raylet")
        [node] = [n for n in cluster.worker_nodes if n.all_processes["raylet"][0].process.pid == raylet]
        cluster.remove_node(node, allow_graceful=False)
        [(tag, lost)] = results(pool, 1, CLASSIFIED_WITHIN_S).items()
        assert tag == "lost"
        assert lost.record.failure is not None
        assert lost.record.failure.kind is FailureClass.LOST, lost.record.failure
        for session in sessions:
            until(lambda gone=session: session_members(gone) == [], "both ranks gone", 20)  # type: ignore[misc]
        add(cluster, **NODE)
        pool.start("lost", TrialOrder(NO_CANDIDATE, (Load(1),)))
        [(_, again)] = results(pool, 1, START_S + 100).items()
        assert again.record.state is TrialState.COMPLETE, again.record.failure
