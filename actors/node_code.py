"""Asks the nodes of a cluster which sweeper they run, before a driver trusts them with its plan."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweeper.code_identity import code_identity
from sweeper.config import StudyConfig
from sweeper.errors import SweeperError

ANSWER_S = 120.0


@dataclass(frozen=True)
class NodeCode:
    """What a node answers; ``problem`` says why it cannot."""

    host: str
    code: str = ""
    problem: str = ""


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
    asked = {node: on_node(node, _own_code).remote() for node in nodes}
    answers = [_answer(ref, nodes[node]) for node, ref in asked.items()]
    wrong = [answer for answer in answers if answer.code != code_identity()]
    if wrong:
        told = "; ".join(f"{a.host}: {a.code or a.problem}" for a in wrong)
        raise SweeperError(
            f"the cluster's nodes do not run this sweeper, {code_identity()} ({told}). Install it there, or let the "
            "job bring it along: sweeper submit FILE --address http://HEAD:8265"
        )


def _answer(ref: Any, host: str) -> NodeCode:
    try:
        answer: NodeCode = ray.get(ref, timeout=ANSWER_S)
    except RayTaskError as error:
        return NodeCode(host, problem=f"cannot import it: {error.cause}")
    except GetTimeoutError:
        return NodeCode(host, problem=f"did not answer within {ANSWER_S:.0f} s")
    except RayError as error:
        return NodeCode(host, problem=str(error).strip().splitlines()[0])
    return answer
