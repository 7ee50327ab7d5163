"""Connects a driver to Ray: the cluster at an address, the one it runs in, or a local one of its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.server.prepare import prepare_engine
from sweeper.server.setup import EngineSetup
from sweeper.trial_order import TrialPlan
from sweeper.workload.conversation import Conversations
from sweeper.workload.prompts import needs_tokenizer, plan_prompts

SETUP_TIMEOUT_S = 900.0


@contextmanager
def cluster(address: str | None, config: StudyConfig) -> Iterator[None]:
    """A Ray connection for the life of a sweep; a local cluster ends with it.

    A local cluster on a machine without GPUs gets the CPUs that are there, but at least what one server
    needs, so that a small machine can run one.

    Raises:
        SweeperError: nothing answers at the address.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    common: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": logging.ERROR,
        "configure_logging": False,
    }
    try:
        if address:
            ray.init(address=address, **common)
        else:
            cpus = max(os.cpu_count() or 1, int(config.resources.cpus_per_server))
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **common)
    except ConnectionError as error:
        raise SweeperError(f"--ray-address {address}: no Ray cluster answers there ({error})") from None
    try:
        yield
    finally:
        ray.shutdown()


def servers_that_fit(config: StudyConfig) -> int:
    """How many servers the cluster's nodes hold, each within one node.

    Raises:
        SweeperError: not a single one fits; the message says what the nodes have.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    wanted = {"GPU": config.gpus_per_server, "CPU": config.resources.cpus_per_server}
    count = 0
    for node in nodes:
        count += min((int(node.get(name, 0) // need) for name, need in wanted.items() if need), default=1)
    if not count:
        have = "; ".join(f"{n.get('GPU', 0):g} GPUs and {n.get('CPU', 0):g} CPUs" for n in nodes)
        raise SweeperError(
            f"resources: a server needs {wanted['GPU']:g} GPUs and {wanted['CPU']:g} CPUs on one node, "
            f"but the cluster's nodes have {have}"
        )
    return count


def trial_plan(config: StudyConfig, conversations: Conversations) -> TrialPlan:
    """What all trials share: the SGLang where the servers will run, and the prompts.

    That need not be the driver's node; prompts that the target's chat template must render are rendered there, too.

    Raises:
        SweeperError: SGLang is not installed there or lacks a flag of the study, no node can run a server, or the
            prompts cannot be used.
    """
    setup: EngineSetup = _where_servers_run(config, prepare_engine, config)
    if not needs_tokenizer(config, conversations):
        return TrialPlan(config, setup, plan_prompts(config, conversations))
    return TrialPlan(config, setup, _where_servers_run(config, plan_prompts, config, conversations))


def _where_servers_run(config: StudyConfig, function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result on a node that can run a server, with a server's resources."""
    servers_that_fit(config)
    remote: Any = ray.remote(function)
    remote = remote.options(num_gpus=config.gpus_per_server, num_cpus=config.resources.cpus_per_server)
    try:
        return ray.get(remote.remote(*arguments), timeout=SETUP_TIMEOUT_S)
    except RayTaskError as error:
        raise SweeperError(str(error.cause)) from None
    except GetTimeoutError:
        raise SweeperError(
            f"resources: no node could look at its SGLang within {SETUP_TIMEOUT_S:.0f} s; see ray status"
        ) from None
    except RayError as error:
        raise SweeperError(f"the node that looked at its SGLang was lost: {error}") from None
