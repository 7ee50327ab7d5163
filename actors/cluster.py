"""Connects a driver to Ray: the cluster at an address, the one it runs in, or a local one of its own."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from actors.node_types import living_nodes, patience_s, startable_nodes
from actors.placement import ServerShape, best_shape, impossible, possible_shapes
from actors.ray_words import said
from sweeper.config import StudyConfig
from sweeper.drafts.preflight import DraftReport, preflight
from sweeper.errors import SweeperError
from sweeper.server.prepare import prepare_engine
from sweeper.server.setup import EngineSetup
from sweeper.space import Candidate
from sweeper.trial.order import TrialPlan
from sweeper.workload.conversation import Conversations
from sweeper.workload.prompts import needs_tokenizer, plan_prompts

SETUP_TIMEOUT_S = 900.0
STARTS = 3

Tell = Callable[[str], None]
"""Says something to a person."""


@contextmanager
def cluster(address: str | None, config: StudyConfig) -> Iterator[None]:
    """A Ray connection for the life of a sweep; a local cluster ends with it.

    A local cluster on a machine without GPUs gets the CPUs that are there, but at least what one server
    needs, so that a small machine can run one.

    Raises:
        SweeperError: nothing answers at the address, or Ray does not start here.
    """
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    # For the cluster that starts here: servers and the clients that measure them at everybody's priority, not 15 below.
    os.environ.setdefault("RAY_worker_niceness", "0")
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
            _start_local(num_cpus=cpus, include_dashboard=False, **common)
    except ConnectionError as error:
        raise SweeperError(
            f"--ray-address {address}: no Ray cluster answers there ({error}){_perhaps_a_token()}"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()


def _perhaps_a_token() -> str:
    """What to do where the cluster may only want a token: its head asks for one as soon as it finds one."""
    if "RAY_AUTH_MODE" in os.environ:
        return ""
    return (
        "; if it was started where there is a ~/.ray/auth_token, it asks for that: export RAY_AUTH_MODE=token"
    )


def _start_local(**options: Any) -> None:
    """Start Ray on this machine; once more where its own processes took longer than it waits for them.

    Raises:
        SweeperError: it still did not start.
    """
    for attempt in range(1, STARTS + 1):
        try:
            ray.init(address="local", **options)
        except Exception as error:  # Ray raises just that
            ray.shutdown()
            if "during startup" not in str(error):
                raise
            if attempt == STARTS:
                raise SweeperError(
                    f"Ray did not start on this machine in {STARTS} attempts ({said(error)}); is it too busy?"
                ) from None
        else:
            return


def shape_that_fits(config: StudyConfig, tell: Tell) -> ServerShape:
    """What a server takes: one node if that holds it, else the fewest nodes that do.

    Waits for nodes that may come, as long as ``actors.node_types.patience_s`` says, and then tells so once; what is
    asked for is demand that an autoscaler sees meanwhile.

    Raises:
        SweeperError: the cluster has no such nodes, and no such will come; the message says what it has.
    """
    nodes = list(living_nodes().values())
    shape = best_shape(config, nodes)
    if shape is not None:
        return shape
    patience, startable = patience_s(config), startable_nodes()
    coming = best_shape(config, startable) if startable else possible_shapes(config)[0]
    if coming is None:
        raise impossible(config, nodes, "and none of the node types that Ray may start would do")
    if not patience:
        raise impossible(config, nodes)
    tell(f"No node holds a server yet ({coming}); waiting up to {patience:.0f} s for nodes to come")
    strategy = "STRICT_PACK" if coming.nodes == 1 else "STRICT_SPREAD"
    demand = ray.util.placement_group([coming.bundle] * coming.nodes, strategy=strategy)
    deadline = time.monotonic() + patience
    try:
        while time.monotonic() < deadline:
            shape = best_shape(config, list(living_nodes().values()))
            if shape is not None:
                return shape
            time.sleep(1)
    finally:
        ray.util.remove_placement_group(demand)
    raise impossible(
        config, list(living_nodes().values()), f"and in {patience:.0f} s none came that would do"
    )


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def trial_plan(config: StudyConfig, conversations: Conversations, tell: Tell = _to_stderr) -> TrialPlan:
    """What all trials share: the SGLang where the servers will run, and the prompts.

    That need not be the driver's node; prompts that the target's chat template must render are rendered there, too.

    Raises:
        SweeperError: SGLang is not installed there or lacks a flag of the study, no node can run a server, or the
            prompts cannot be used.
    """
    shape = shape_that_fits(config, tell)
    setup: EngineSetup = _where_servers_run(shape, prepare_engine, config, shape.nodes)
    if not needs_tokenizer(config, conversations):
        return TrialPlan(config, setup, plan_prompts(config, conversations))
    return TrialPlan(config, setup, _where_servers_run(shape, plan_prompts, config, conversations))


def draft_reports(
    config: StudyConfig, setup: EngineSetup, candidates: Sequence[Candidate]
) -> tuple[DraftReport, ...]:
    """Preflight of the drafts where the servers will run, since checkpoints may lie on those nodes alone."""
    shape = shape_that_fits(config, _to_stderr)
    reports: tuple[DraftReport, ...] = _where_servers_run(shape, preflight, config, setup, candidates)
    return reports


def _where_servers_run(shape: ServerShape, function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result on a node that can run a server, or a rank of it, with its resources."""
    remote: Any = ray.remote(function)
    own = {name: amount for name, amount in shape.bundle.items() if name not in ("GPU", "CPU")}
    remote = remote.options(num_gpus=shape.gpus, num_cpus=shape.cpus, resources=own)
    try:
        return ray.get(remote.remote(*arguments), timeout=SETUP_TIMEOUT_S)
    except RayTaskError as error:
        raise SweeperError(str(error.cause)) from None
    except GetTimeoutError:
        raise SweeperError(
            f"resources: no node could look at its SGLang within {SETUP_TIMEOUT_S:.0f} s; see ray status"
        ) from None
    except RayError as error:
        raise SweeperError(f"the node that looked at its SGLang was lost: {said(error)}") from None
