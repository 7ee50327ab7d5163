"""Runs a job of probe or map where a GPU is: as a Ray task on a cluster that has one, else in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError

from actors.cluster import cluster
from sweeper.config import StudyConfig
from sweeper.errors import SweeperError

Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]


def run_on_cluster(
    function: Callable[[Any, Progress], Result],
    job: Any,
    study: StudyConfig,
    address: str,
    progress: Progress,
) -> Result:
    """``function(job, progress)`` on the cluster at ``address``, with a GPU where the cluster has any.

    Progress is shown by this process only where the job runs in it; a task tells when it begins.

    Raises:
        SweeperError: nothing answers at the address, the job's own error, or its node was lost.
    """
    with cluster(address, study):
        gpus = 1 if ray.cluster_resources().get("GPU", 0) >= 1 else 0
        progress(f"a Ray task with {gpus} GPU", 0, 1)
        task: Any = ray.remote(_quietly).options(num_gpus=gpus, num_cpus=1, max_retries=0)
        try:
            result: Result = ray.get(task.remote(function, job))
            return result
        except RayTaskError as error:
            cause = error.cause
            raise (cause if isinstance(cause, SweeperError) else SweeperError(str(cause))) from None
        except RayError as error:
            raise SweeperError(f"the node that ran the draft was lost: {error}") from None


def _quietly(function: Callable[[Any, Progress], Result], job: Any) -> Result:
    return function(job, lambda stage, done, of: None)
