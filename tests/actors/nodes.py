"""Ray clusters of several raylets on this machine, with GPUs that nvidia-smi says are there."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import ray
from ray.cluster_utils import Cluster

from actors.pool import ServerPool
from sweeper.config import StudyConfig
from sweeper.records import TrialResult
from sweeper.server.setup import EngineSetup, shared_pins
from sweeper.trial.order import TrialPlan
from sweeper.workload.prompts import plan_prompts, read_conversations

NVIDIA_SMI = """#!/bin/sh
# Sixteen GPUs, of the kind and with the UUIDs that the node's environment says.
for i in 0 1 2 3 4 5 6 7; do
    echo "$i, GPU-${FAKE_GPUS:-a}-$((i / ${FAKE_SAME:-1})), ${FAKE_KIND:-Fake H100}, 81559, 570.1, 00000000:0$i:00.0"
done
"""


def fake_nvidia_smi(directory: Path) -> Path:
    """A directory for PATH."""
    program = directory / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return directory


class Nodes(Protocol):
    """The fixture ``nodes``: a context in which each of the nodes is a raylet beside the head."""

    def __call__(self, *each: dict[str, Any]) -> AbstractContextManager[Cluster]: ...


@contextmanager
def head() -> Iterator[Cluster]:
    """A node that holds no server, for nodes that come and go beside it."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        yield cluster
    finally:
        cluster.shutdown()


@contextmanager
def beside(cluster: Cluster, *each: dict[str, Any]) -> Iterator[Cluster]:
    """A raylet for each of the nodes; this process is connected to the cluster. At the end only the head is left."""
    try:
        for node in each:
            add(cluster, **node)
        ray.init(address=cluster.address, log_to_driver=False)
        yield cluster
    finally:
        for node in list(cluster.worker_nodes):
            cluster.remove_node(node)
        if ray.is_initialized():
            until(lambda: sum(node["Alive"] for node in ray.nodes()) == 1, "the head alone")
        ray.shutdown()


def add(cluster: Cluster, **node: Any) -> Any:
    """A raylet more; ``env`` goes to its workers: GPUs and their kind, for instance."""
    env = {"RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0", **node.pop("env", {})}
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        return cluster.add_node(**{"num_cpus": 4, **node})
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def plan_of(study: StudyConfig, on_nodes: int = 1) -> TrialPlan:
    return TrialPlan(
        study,
        EngineSetup("0.5.23", pins=shared_pins(study, "0.5.23"), nodes=on_nodes),
        plan_prompts(study, read_conversations(study)),
    )


def until(condition: Callable[[], Any], what: str, timeout_s: float = 180) -> Any:
    """The condition's first true value."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def results(pool: ServerPool, count: int, timeout_s: float = 240) -> dict[str, TrialResult]:
    """The next results, by tag."""
    found: dict[str, TrialResult] = {}
    deadline = time.monotonic() + timeout_s
    while len(found) < count:
        assert time.monotonic() < deadline, f"only {list(found)} came"
        found.update(pool.wait(1.0))
    return found


def idle(pool: ServerPool, count: int, timeout_s: float = 180) -> list[str]:
    """Names of the idle servers, once there are so many."""
    return list(until(lambda: len(pool.idle()) >= count and pool.idle(), f"{count} servers", timeout_s))
