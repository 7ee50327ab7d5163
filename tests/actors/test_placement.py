"""Servers on a cluster of several nodes: which ones hold them, what they own there, and what comes and goes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import ray

from actors import node_types
from actors.cluster import shape_that_fits
from actors.placement import best_shape, impossible, server_shape, servers_on
from actors.pool import ServerPool
from sweeper.errors import SweeperError
from sweeper.records import FailureClass, TrialState
from sweeper.study.surroundings import NO_CANDIDATE
from sweeper.study_file.reading import load_study_file
from sweeper.trial.order import TrialOrder
from tests.actors.nodes import Nodes, add, fake_nvidia_smi, idle, plan_of, results, until
from tests.command_line import servers, value_of
from tests.conftest import WriteStudy

pytestmark = [pytest.mark.xdist_group("one Ray"), pytest.mark.timeout(900)]

H100 = {"GPU": 8.0, "CPU": 96.0, "accelerator_type:H100": 1.0}
A100 = {"GPU": 4.0, "CPU": 64.0, "accelerator_type:A100": 1.0, "a100_pool": 1.0}
GPU_STUDY = {"device": "cuda"}


@pytest.fixture(autouse=True)
def gpus(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    directory = fake_nvidia_smi(tmp_path_factory.mktemp("bin"))
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    yield
    assert not ray.is_initialized()


def test_a_server_stays_on_one_node_if_it_fits_and_spans_the_fewest_if_not(write_study: WriteStudy) -> None:
    study = load_study_file(write_study(engine={**GPU_STUDY, "tensor_parallel": 8}))
    shape = best_shape(study, [H100, A100])
    assert shape is not None
    assert (shape.nodes, shape.gpus) == (1, 8)
    shape = best_shape(study, [A100] * 4)
    assert shape is not None
    assert (shape.nodes, shape.gpus) == (2, 4)
    assert servers_on(shape, [A100] * 4) == 2
    assert servers_on(shape, [A100]) == 0
    assert (
        servers_on(server_shape(study, 2), [H100, A100]) == 1
    )  # both of its ranks on the H100s would be one node
    assert best_shape(study, [A100]) is None


def test_gpus_follow_from_every_kind_of_parallelism(write_study: WriteStudy) -> None:
    def gpus(**extra: object) -> float:
        engine = {**GPU_STUDY, "tensor_parallel": 4, "extra_args": extra}
        return load_study_file(write_study(engine=engine)).gpus_per_server

    assert gpus() == 4
    assert gpus(**{"pp-size": 2}) == 8
    assert gpus(**{"pp-size": 2, "data_parallel_size": 2}) == 16
    assert (
        gpus(**{"dp-size": 4, "enable-dp-attention": True}) == 4
    )  # it shares the GPUs of tensor parallelism
    with pytest.raises(SweeperError, match="dp-size on one node"):
        load_study_file(
            write_study(
                engine={**GPU_STUDY, "tensor_parallel": 4, "extra_args": {"dp-size": 2}},
                resources={"nodes_per_server": 2},
            )
        )


def test_what_can_never_be_placed_is_an_error_that_names_what_there_is(write_study: WriteStudy) -> None:
    def error(**resources: object) -> str:
        study = load_study_file(write_study(engine=GPU_STUDY, resources=resources))
        return str(impossible(study, [H100, H100, A100]))

    assert "2 times 8 GPUs (H100) and 96 CPUs; 4 GPUs (A100) and 64 CPUs and 1 a100_pool" in error(
        gpus_per_server=9
    )
    assert "no node has resources.accelerator_type B200 (there: A100, H100)" in error(accelerator_type="B200")
    assert "no node has resources.custom.rack7 (there: a100_pool)" in error(custom={"rack7": 1})
    assert "needs 1 GPUs of type A100 and 99 CPUs on one node" in error(
        accelerator_type="A100", cpus_per_server=99
    )


def test_servers_share_nodes_but_nothing_else(write_study: WriteStudy, nodes: Nodes) -> None:
    """Four servers with a GPU each on two nodes with two."""
    # Slow, so that none has ended before all are up.
    slow = {**GPU_STUDY, "env": {"FAKE_FAULTS": '{"": "slow"}'}}
    study = load_study_file(write_study(engine=slow, workload={"max_new_tokens": 64}))
    with nodes({"num_gpus": 2, "env": {"FAKE_GPUS": "a"}}, {"num_gpus": 2, "env": {"FAKE_GPUS": "b"}}):
        with ServerPool(plan_of(study)) as pool:
            assert pool.size() == 4
            assert pool.hardware().key == "1x Fake H100"
            names = idle(pool, 4)
            for name in names:
                pool.start(name, TrialOrder(NO_CANDIDATE, study.workload.loads), name)
            running = until(
                lambda: len(servers(study.engine.model)) == 4 and servers(study.engine.model), "4"
            )
            ports = {value_of("--port", s) for s in running}
            visible = sorted((s.environ()["FAKE_GPUS"], s.environ()["CUDA_VISIBLE_DEVICES"]) for s in running)
            done = results(pool, 4)
        assert visible == [("a", "0"), ("a", "1"), ("b", "0"), ("b", "1")]
        assert len(ports) == 4
        assert all(r.record.state is TrialState.COMPLETE for r in done.values()), done

        greedy = load_study_file(write_study(engine=GPU_STUDY, resources={"gpus_per_server": 8}))
        with pytest.raises(SweeperError, match="needs 8 GPUs.*2 times 2 GPUs and 4 CPUs"):
            ServerPool(plan_of(greedy))
        with pytest.raises(SweeperError, match="no node has resources.custom.rack7"):
            shape_that_fits(
                load_study_file(write_study(engine=GPU_STUDY, resources={"custom": {"rack7": 1}})), print
            )


def test_nodes_that_may_come_are_waited_for_and_a_person_is_told(
    write_study: WriteStudy, nodes: Nodes
) -> None:
    patient = load_study_file(write_study(engine=GPU_STUDY, resources={"wait_for_nodes_s": 60}))
    hasty = load_study_file(write_study(engine=GPU_STUDY, resources={"wait_for_nodes_s": 2}))
    said: list[str] = []
    with nodes() as cluster:
        with pytest.raises(SweeperError, match=r"0 GPUs and 0 CPUs; and in 2 s none came that would do"):
            shape_that_fits(hasty, said.append)
        with ThreadPoolExecutor(1) as elsewhere:
            found = elsewhere.submit(shape_that_fits, patient, said.append)
            until(lambda: len(said) == 2, "a word")
            add(cluster, num_gpus=1)
            assert found.result(60).nodes == 1
    assert (
        said[1]
        == "No node holds a server yet (1 GPUs and 1 CPUs on one node); waiting up to 60 s for nodes to come"
    )


def test_node_types_of_a_launched_cluster_are_known(tmp_path: Path) -> None:
    file = tmp_path / "ray_bootstrap_config.yaml"
    assert node_types._of_launcher(file) == []
    file.write_text(
        "provider: {type: aws}\nmax_workers: 2\navailable_node_types:\n"
        "  head: {resources: {CPU: 8}, max_workers: 0}\n  gpu: {resources: {CPU: 96, GPU: 8}}\n"
    )
    assert node_types._of_launcher(file) == [{"CPU": 96, "GPU": 8}] * 2
    file.write_text(file.read_text().replace("aws", "local"))
    assert node_types._of_launcher(file) == []  # it starts no machines
    file.write_text("provider: [")
    assert node_types._of_launcher(file) == []


def test_two_servers_with_one_gpu_are_an_error_that_names_both(write_study: WriteStudy, nodes: Nodes) -> None:
    study = load_study_file(write_study(engine=GPU_STUDY))
    with (
        nodes({"num_gpus": 2, "env": {"FAKE_SAME": "2"}}),
        ServerPool(plan_of(study)) as pool,
        pytest.raises(SweeperError, match=r"servers \S+-1 and \S+-2 both got GPU GPU-a-0"),
    ):
        idle(pool, 2)


def test_a_study_runs_on_one_kind_and_says_what_it_leaves_out(write_study: WriteStudy, nodes: Nodes) -> None:
    study = load_study_file(write_study(engine=GPU_STUDY))
    with nodes(
        {"num_gpus": 1, "env": {"FAKE_GPUS": "a", "FAKE_KIND": "Fake A100"}},
        {"num_gpus": 2, "env": {"FAKE_GPUS": "b"}},
    ):
        with ServerPool(plan_of(study)) as pool:
            assert pool.hardware().key == "1x Fake H100"
            assert len(idle(pool, 2)) == 2
            [notice] = pool.notices()
            assert "measuring on 1x Fake H100; 1 server(s) on 1x Fake A100 are not used" in notice
            assert pool.size() == 2
        with ServerPool(plan_of(study)) as pool:  # a study that began on the other kind goes on there
            assert pool.hardware("1x Fake A100").key == "1x Fake A100"
            assert len(idle(pool, 1)) == 1


def test_the_pool_follows_nodes_that_come_and_go_and_retries_elsewhere(
    write_study: WriteStudy, nodes: Nodes
) -> None:
    study = load_study_file(
        write_study(
            engine={**GPU_STUDY, "env": {"FAKE_FAULTS": '{"": "hang"}'}}, measurement={"stall_timeout_s": 600}
        )
    )
    order = TrialOrder(NO_CANDIDATE, study.workload.loads)
    with nodes({"num_gpus": 1, "env": {"FAKE_GPUS": "a"}}) as cluster, ServerPool(plan_of(study)) as pool:
        [first] = idle(pool, 1)
        pool.start("doomed", order, first)
        until(lambda: servers(study.engine.model), "a server")
        pool.wait(0.1)
        second = add(cluster, num_gpus=1, env={"FAKE_GPUS": "b"})
        [joined] = idle(pool, 1)
        assert joined != first
        pool.start("safe", order, joined)
        until(lambda: len(servers(study.engine.model)) == 2, "two servers")
        [left] = [s for s in servers(study.engine.model) if s.environ()["FAKE_GPUS"] == "a"]
        cluster.remove_node(next(n for n in cluster.worker_nodes if n is not second), allow_graceful=False)
        [(tag, lost)] = results(pool, 1).items()
        assert tag == "doomed"
        assert lost.record.failure is not None
        assert lost.record.failure.kind is FailureClass.LOST
        until(
            lambda: not left.is_running() or left.status() == psutil.STATUS_ZOMBIE, "the node's server gone"
        )
        until(lambda: pool.idle() == [] and pool.size() == 1, "a pool of one")
        pool.interrupt()
        assert results(pool, 1)["safe"].record.state is TrialState.INTERRUPTED
        pool.need(0)
        pool.dismiss(joined)
        assert pool.idle() == []


def test_a_node_that_spoils_trials_in_a_row_gets_no_more(write_study: WriteStudy, nodes: Nodes) -> None:
    """Its server's actor is killed twice; meanwhile the next trial is kept for the other node."""
    study = load_study_file(
        write_study(
            engine={**GPU_STUDY, "env": {"FAKE_FAULTS": '{"": "hang"}'}},
            measurement={"stall_timeout_s": 600},
            resources={"cordon_after": 2},
        )
    )
    order = TrialOrder(NO_CANDIDATE, study.workload.loads)
    with (
        nodes({"num_gpus": 1, "env": {"FAKE_GPUS": "a"}}, {"num_gpus": 1, "env": {"FAKE_GPUS": "b"}}),
        ServerPool(plan_of(study)) as pool,
    ):
        bad, _ = idle(pool, 2)
        for turn in (1, 2):
            pool.start("doomed", order, bad)
            [server] = until(lambda: servers(study.engine.model), "a server")
            node = server.environ()["FAKE_GPUS"]
            actor = server.parent().parent()  # type: ignore[union-attr]
            assert actor is not None
            os.kill(actor.pid, signal.SIGKILL)
            lost = results(pool, 1)["doomed"].record
            assert lost.failure is not None
            assert lost.failure.kind is FailureClass.LOST
            until(lambda: not servers(study.engine.model), "its server gone")
            if turn == 1:  # a replacement comes, but the other node goes first
                until(lambda: len(pool._roster.ready) == 2 or pool.idle() is None, "a replacement")
                [other] = pool.idle()
                pool.start("retry", order, other)
                [server] = until(lambda: servers(study.engine.model), "the retry's server")
                assert server.environ()["FAKE_GPUS"] != node
                pool.interrupt()
                assert results(pool, 1)["retry"].record.state is TrialState.INTERRUPTED
                bad = next(name for name in idle(pool, 2) if name != other)
        [notice] = pool.notices()
        assert "spoiled 2 trials in a row" in notice
        assert "it gets no more trials" in notice
        assert idle(pool, 1) == [other]
        assert pool.size() == 1


def test_a_server_on_two_nodes_lives_and_dies_as_one(write_study: WriteStudy, nodes: Nodes) -> None:
    study = load_study_file(
        write_study(engine={**GPU_STUDY, "tensor_parallel": 2}, resources={"cpus_per_server": 1})
    )
    hanging = study.model_copy(
        update={
            "engine": study.engine.model_copy(
                update={"env": {**study.engine.env, "FAKE_FAULTS": '{"": "hang"}'}}
            ),
            "measurement": study.measurement.model_copy(update={"stall_timeout_s": 600}),
        }
    )
    order = TrialOrder(NO_CANDIDATE, study.workload.loads)
    with nodes(
        {"num_gpus": 1, "env": {"FAKE_GPUS": "a"}}, {"num_gpus": 1, "env": {"FAKE_GPUS": "b"}}
    ) as cluster:
        plan = trial_plan_without_sglang(study)
        assert plan.setup.nodes == 2
        with ServerPool(plan) as pool:
            assert pool.hardware().key == "2x Fake H100 on 2 nodes"
            pool.start("whole", order)
            done = results(pool, 1)["whole"]
            assert done.record.state is TrialState.COMPLETE, done.record.failure
            assert done.leak is None
            assert "--nnodes 2" in " ".join(done.record.command)
            assert done.record.hardware is not None
            assert done.record.hardware.nodes == 2
            assert "rank 1 serves its health only" in done.log
            assert servers(study.engine.model) == []
            assert idle(pool, 1)
        with ServerPool(plan_of(hanging, on_nodes=2)) as pool:
            pool.start("killed rank", order)
            both = until(lambda: len(servers(study.engine.model)) == 2 and servers(study.engine.model), "two")
            until(lambda: "warming" in pool.phases().get("killed rank", ""), "a load")
            rank = next(s for s in both if "--node-rank 1" in " ".join(s.cmdline()))
            rank.kill()
            dead = results(pool, 1)["killed rank"]
            assert dead.record.failure is not None
            assert dead.record.failure.kind is FailureClass.CRASH
            assert servers(study.engine.model) == []
            assert dead.leak is None
            assert "== rank 1 on" in dead.log
            idle(pool, 1)
            for rank, gpus in ((1, "c"), (0, "d")):
                idle(pool, 1)
                pool.start("killed node", order)
                until(lambda: "warming" in pool.phases().get("killed node", ""), "a load")
                there = servers(study.engine.model)
                [one] = [s for s in there if f"--node-rank {rank}" in " ".join(s.cmdline())]
                [node] = [n for n in cluster.worker_nodes if raylet_of(one) == raylet_pid(n)]
                cluster.remove_node(node, allow_graceful=False)
                lost = results(pool, 1)["killed node"]
                assert lost.record.failure is not None
                assert lost.record.failure.kind is FailureClass.LOST
                until(lambda: servers(study.engine.model) == [], "no server")
                add(cluster, num_gpus=1, env={"FAKE_GPUS": gpus})
            assert idle(pool, 1)


def trial_plan_without_sglang(study):  # type: ignore[no-untyped-def]
    """The plan as a driver makes it, where the nodes' SGLang is the stand-in."""
    shape = shape_that_fits(study, print)
    return plan_of(study, shape.nodes)


def raylet_pid(node) -> int:  # type: ignore[no-untyped-def]
    [raylet] = node.all_processes["raylet"]
    return int(raylet.process.pid)


def raylet_of(process: psutil.Process) -> int:
    return next(p.pid for p in process.parents() if p.name() == "raylet")
