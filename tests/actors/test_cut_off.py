"""A node that is cut off from the driver, and a head that restarts: bounded, retried, resumed, and nothing left."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
import ray
from ray.cluster_utils import Cluster

from actors.pool import ServerPool
from sweeper.records import FailureClass, TrialState
from sweeper.study.surroundings import NO_CANDIDATE
from sweeper.study_file.reading import load_study_file
from sweeper.trial.order import TrialOrder
from tests.actors.nodes import idle, plan_of, results, until
from tests.command_line import REPOSITORY, servers
from tests.conftest import WriteStudy
from tests.ray_cluster import RAY, free_port

pytestmark = [pytest.mark.xdist_group("one Ray"), pytest.mark.slow, pytest.mark.timeout(600)]

QUICK_TO_NOTICE = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
}
"""Ray's own patience with a silent node is up to a minute."""
LOST_WITHIN_S = 45.0
DRIVER_ENDS_WITHIN_S = 150.0


@contextmanager
def two_nodes() -> Iterator[None]:
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": QUICK_TO_NOTICE}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        ray.init(address=cluster.address, log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def raylet_of(process: psutil.Process) -> psutil.Process:
    return next(parent for parent in process.parents() if parent.name() == "raylet")


def test_a_node_that_is_cut_off_costs_its_trial_one_retry_and_is_clean_when_it_comes_back(
    write_study: WriteStudy,
) -> None:
    study = load_study_file(write_study(workload={"max_new_tokens": 2000}))
    order = TrialOrder(NO_CANDIDATE, study.workload.loads[:1], short=True)
    with two_nodes(), ServerPool(plan_of(study)) as pool:
        idle(pool, 2)
        pool.start("cut off", order)
        until(lambda: pool.phases().get("cut off", "").startswith("measuring"), "a load", 90)
        [server] = servers(study.engine.model)
        raylet = raylet_of(server)
        raylet.send_signal(signal.SIGSTOP)
        try:
            lost = results(pool, 1, LOST_WITHIN_S)["cut off"].record
            assert lost.failure is not None
            assert lost.failure.kind is FailureClass.LOST
            pool.start("again", order)
            again = results(pool, 1, 120)["again"].record
            assert again.state is TrialState.COMPLETE, again.failure
        finally:
            raylet.send_signal(signal.SIGCONT)
        until(lambda: not raylet.is_running() or raylet.status() == psutil.STATUS_ZOMBIE, "raylet gone", 60)
        until(lambda: servers(study.engine.model) == [], "no server left", 30)


class Nodes:
    """A head and a node that holds servers, as ``ray start --block`` makes them, which ask for a token."""

    def __init__(self, root: Path, port: int) -> None:
        self.root, self.port = root, port
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
        self.token = root / "token"
        self.token.write_text(secrets.token_hex(32))
        self.environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(self.token)}
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        head = ["--head", f"--port={self.port}", "--num-cpus=0", "--include-dashboard=false"]
        self._start(*head, f"--ray-client-server-port={free_port()}")
        self._start(f"--address=127.0.0.1:{self.port}", "--num-cpus=1")

    def _start(self, *words: str) -> None:
        command = [RAY, "start", "--block", "--node-ip-address=127.0.0.1", "--disable-usage-stats", *words]
        command += ["--object-store-memory=100000000", f"--metrics-export-port={free_port()}"]
        log_file = self.root / f"ray-{len(list(self.root.glob('ray-*.log')))}.log"
        with log_file.open("wb") as log:
            self.started.append(
                subprocess.Popen(
                    command, stdout=log, stderr=log, env=self.environment, start_new_session=True
                )
            )
        until(lambda: "Ray runtime started" in log_file.read_text(), "a node", 90)

    def kill(self, which: int) -> None:
        """SIGKILL to all of a node's own processes, as when its machine goes down."""
        process = psutil.Process(self.started[which].pid)
        for victim in [*process.children(recursive=True), process]:
            with suppress(psutil.Error):
                victim.kill()
        self.started[which].wait()


def drive(study: Path, nodes: Nodes, log: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sweeper", "run", str(study), "--ray-address", f"127.0.0.1:{nodes.port}"]
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(nodes.token)}
    with log.open("wb") as output:
        return subprocess.Popen(
            command, cwd=REPOSITORY, stdout=output, stderr=subprocess.STDOUT, env=environment
        )


def test_after_a_restart_of_the_head_the_same_command_continues(
    write_study: WriteStudy, tmp_path: Path
) -> None:
    file = write_study(workload={"max_new_tokens": 200})
    study, first, second = load_study_file(file), tmp_path / "first.log", tmp_path / "second.log"
    ray_of_ours = Nodes(tmp_path, free_port())
    ray_of_ours.start()
    try:
        driver = drive(file, ray_of_ours, first)
        until(lambda: "trial 0 done" in first.read_text() or driver.poll() is not None, "a result", 240)
        ray_of_ours.kill(0)
        assert driver.wait(DRIVER_ENDS_WITHIN_S) != 0
        until(lambda: servers(study.engine.model) == [], "no server left", DRIVER_ENDS_WITHIN_S)
        ray_of_ours.kill(1)
        ray_of_ours.started.clear()
        ray_of_ours.start()
        assert drive(file, ray_of_ours, second).wait(240) == 0, second.read_text()
    finally:
        for number in range(len(ray_of_ours.started)):
            ray_of_ours.kill(number)
    said = first.read_text() + second.read_text()
    done = [line.split(" in ")[0] for line in said.splitlines() if " done in " in line]
    assert "trial 0 done" in done
    assert len(done) == len(set(done)) == 4, said
