"""Puts another draft's weights into a running server, which takes seconds where a launch takes minutes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile

from sweeper.config import StudyConfig
from sweeper.releases import release
from sweeper.server import load_draft
from sweeper.server.client import ServerUnreachableError
from sweeper.server.command import launch_environment
from sweeper.server.log_text import last_words
from sweeper.server.process import ServerProcess
from sweeper.server.setup import EngineSetup, own_flags

SINCE = (0, 5, 21)
"""Before, the weights of a draft alone could not be updated."""
ALGORITHM = "EAGLE3"
TIMEOUT_S = 300.0


class SwapError(Exception):
    """The server did not take the weights; which ones it has now is not known."""


def can_swap(study: StudyConfig, setup: EngineSetup) -> bool:
    """Whether servers of a study could take other drafts' weights: known of one node, without data parallelism."""
    own = own_flags(study)
    return (
        release(setup.version) >= SINCE
        and setup.nodes == 1
        and not study.engine.dp_attention
        and not any(own.get(name, 1) != 1 for name in ("dp-size", "data-parallel-size", "pp-size"))
    )


def swap_draft(server: ServerProcess, study: StudyConfig, draft: str) -> None:
    """Load the weights of the draft of that name into an idle server, and empty its caches.

    Raises:
        SwapError: it did not take them.
    """
    revision = own_flags(study).get("speculative-draft-model-revision")
    asked = {
        "url": server.address.url,
        "api_key": server.address.api_key,
        "checkpoint": study.space.drafts[draft].path,
        "revision": None if revision is None else str(revision),
        "ranks": study.engine.tensor_parallel,
    }
    environment = launch_environment(study)
    command = [study.engine.python or sys.executable, load_draft.__file__]
    # Into a file: torch's keeper of shared memory inherits it and lives as long as the server, and a pipe with it.
    with tempfile.TemporaryFile() as complaint:
        try:
            done = subprocess.run(
                command,
                input=json.dumps(asked).encode(),
                stdout=subprocess.DEVNULL,
                stderr=complaint,
                timeout=TIMEOUT_S,
                env=environment,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SwapError(f"the weights could not be sent: {error}") from None
        if done.returncode:
            complaint.seek(0)
            raise SwapError(last_words(complaint.read().decode("utf-8", "replace"), environment))
    try:
        server.client.flush_cache()
    except ServerUnreachableError as error:
        raise SwapError(str(error)) from None
