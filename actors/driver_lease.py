"""One driver per study in a Ray cluster, also where each would have a run directory of its own on another node.

``sweeper.driver.lease`` and ``sweeper.driver.lock_file`` guard a study's database and its run directory, and cannot
do this: by default both lie on the driver's node, so that two drivers on two nodes have a database each, and neither
sees the other's lock. Nor can this do what they do: Ray knows nothing of drivers on other clusters, or on none, that
share a database server, and gives the name to the next one as soon as it believes a holder to be dead that is only
cut off; the fence in the database then keeps that one from writing. The name is taken first: a driver copies the
newest run to its node (``actors.run_location``) before there is a database whose lease it could take.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from sweeper.driver.drives import submission_id
from sweeper.errors import SweeperError

NAMESPACE = "sweeper"
PATIENCE_S = 4.0
"""Ray ends the actors of a killed driver within about a second; a holder that answers after this long is alive."""


class _Holder:
    def __init__(self, who: str) -> None:
        self._who = who

    def who(self) -> str:
        return self._who


@contextmanager
def only_driver(study: str) -> Iterator[None]:
    """Hold the study's name in the cluster. Ray gives the name to one actor at a time, and the actor dies with us.

    Raises:
        SweeperError: another driver of this cluster has it; the message says which.
    """
    job = submission_id()
    who = f"pid {os.getpid()} on {os.uname().nodename}" + (f", job {job}" if job else "")
    deadline = time.monotonic() + PATIENCE_S
    while (actor := _claim(study, who)) is None:
        if time.monotonic() > deadline:
            raise SweeperError(
                f"study {study!r} is driven by another process of this cluster ({_who_has(study)}); wait for it, stop "
                "it (sweeper stop), or choose another name with --name"
            )
        time.sleep(0.25)
    try:
        yield
    finally:
        ray.kill(actor)


def _claim(study: str, who: str) -> Any:
    """The actor that holds the name for us, None if somebody else's does."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    remote: Any = ray.remote(_Holder)
    options = {
        "name": f"driver of {study}",
        "namespace": NAMESPACE,
        "num_cpus": 0,
        "scheduling_strategy": here,
    }
    try:
        actor = remote.options(**options).remote(who)
        ray.get(actor.who.remote())
    except (ValueError, RayError):  # taken; or it was, by an actor that is about to go
        return None
    return actor


def _who_has(study: str) -> str:
    try:
        holder = ray.get_actor(f"driver of {study}", namespace=NAMESPACE)
        return str(ray.get(holder.who.remote(), timeout=2))
    except (ValueError, RayError):
        return "which has just begun or ended"
