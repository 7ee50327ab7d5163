"""Asks the nodes of a cluster which sweeper they run, before a driver trusts them with its plan."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.node_types import living_nodes
from actors.ray_words import said
from actors.seat import tidy_up
from sweeper.code_identity import code_identity
from sweeper.config import StudyConfig
from sweeper.errors import SweeperError

ANSWER_S = 120.0
TIDY_S = 10.0
NOTICED_S = 45.0
"""Ray takes a node that is silent for dead after half a minute."""


@dataclass(frozen=True)
class NodeCode:
    """What a node answers; ``problem`` says why it cannot. ``lost``: whoever should have answered is gone."""

    host: str
    code: str = ""
    problem: str = ""
    lost: bool = False


def _own_code() -> NodeCode:
    return NodeCode(os.uname().nodename, code_identity())


def on_node(node_id: str, function: Any) -> Any:
    """The function as a Ray task on a certain node, which reserves nothing there."""
    remote: Any = ray.remote(function)
    strategy = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return remote.options(num_cpus=0, max_retries=0, scheduling_strategy=strategy)


def require_same_code(config: StudyConfig) -> None:
    """Every node that may run a server has this driver's sweeper.

    In a job they have: it ships the code. Outside of one, each node imports what is installed there.

    Raises:
        SweeperError: some have another one, or none; the message names them.
    """
    kind = "GPU" if config.gpus_per_server else "CPU"
    nodes = {
        node["NodeID"]: node["NodeManagerHostname"]
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get(kind, 0) > 0
    }
    wrong = [answer for answer in _answers(nodes) if answer.code != code_identity()]
    if wrong:
        told = "; ".join(f"{a.host}: {a.code or a.problem}" for a in wrong)
        raise SweeperError(
            f"the cluster's nodes do not run this sweeper, {code_identity()} ({told}). Install it there, or let the "
            "job bring it along: sweeper submit FILE --address http://HEAD:8265"
        )


def _answers(nodes: Mapping[str, str]) -> Iterator[NodeCode]:
    """What the nodes (hosts by id) answer. One that is lost meanwhile says nothing, and Ray may notice that late."""
    deadline = time.monotonic() + NOTICED_S
    while nodes:
        asked = {node: on_node(node, _own_code).remote() for node in nodes}
        answers = {node: _answer(ref, nodes[node]) for node, ref in asked.items()}
        late = time.monotonic() > deadline
        yield from (answer for answer in answers.values() if not answer.lost or late)
        there = living_nodes()
        again = [node for node, answer in answers.items() if answer.lost and not late and node in there]
        nodes = {node: nodes[node] for node in again}
        time.sleep(1.0 if nodes else 0.0)


def _answer(ref: Any, host: str) -> NodeCode:
    try:
        answer: NodeCode = ray.get(ref, timeout=ANSWER_S)
    except RayTaskError as error:
        return NodeCode(host, problem=f"cannot import it: {said(error)}")
    except GetTimeoutError:
        return NodeCode(host, problem=f"did not answer within {ANSWER_S:.0f} s")
    except RayError as error:
        return NodeCode(host, problem=said(error), lost=True)
    return answer


def tidy_nodes() -> None:
    """Leave nothing on the cluster's nodes of what was killed there; a node that does not answer keeps what it has."""
    asked = [on_node(node, tidy_up).remote() for node in living_nodes()]
    if asked:
        ray.wait(asked, num_returns=len(asked), timeout=TIDY_S)
