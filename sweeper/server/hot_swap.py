"""Puts another draft's weights into a running server, which takes seconds where a launch takes minutes."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from sweeper.config import StudyConfig
from sweeper.releases import release
from sweeper.server import load_draft
from sweeper.server.client import ServerUnreachableError
from sweeper.server.command import launch_environment
from sweeper.server.log_text import last_words
from sweeper.server.process import POLL_S, ServerProcess
from sweeper.server.setup import EngineSetup, own_flags

SINCE = (0, 5, 21)
"""Before, the weights of a draft alone could not be updated."""
ALGORITHM = "EAGLE3"
TIMEOUT_S = 300.0


class SwapError(Exception):
    """The server did not take the weights; which ones it has now is not known."""


def can_swap(study: StudyConfig, setup: EngineSetup) -> bool:
    """Whether servers of a study could take other drafts' weights: known of one node, with tensor parallelism alone."""
    engine = study.engine
    alone = engine.replicas == 1 and engine.ranks == engine.tensor_parallel and not engine.dp_attention
    return release(setup.version) >= SINCE and setup.nodes == 1 and alone


def swap_draft(
    server: ServerProcess, study: StudyConfig, draft: str, interrupted: Callable[[], bool] = lambda: False
) -> None:
    """Load the weights of the draft of that name into an idle server, and empty its caches.

    Raises:
        SwapError: it did not take them.
        InterruptedError: ``interrupted`` became true; which weights it has now is not known.
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
            sender = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=complaint, env=environment
            )
        except OSError as error:
            raise SwapError(f"the weights cannot be sent: {error}") from None
        code = _wait(sender, json.dumps(asked).encode(), interrupted)
        if code:
            complaint.seek(0)
            said = complaint.read().decode("utf-8", "replace")
            raise SwapError(last_words(said, environment, server.address.api_key))
    try:
        server.client.flush_cache()
    except ServerUnreachableError as error:
        raise SwapError(str(error)) from None


def _wait(sender: subprocess.Popen[bytes], asked: bytes, interrupted: Callable[[], bool]) -> int:
    deadline = time.monotonic() + TIMEOUT_S
    given: bytes | None = asked
    while True:
        try:
            sender.communicate(given, timeout=POLL_S)
            return sender.returncode
        except subprocess.TimeoutExpired:
            given = None
        if interrupted() or time.monotonic() > deadline:
            sender.kill()
            sender.wait()
            if interrupted():
                raise InterruptedError("stopped while weights were loaded")
            raise SwapError(f"the weights were not taken within {TIMEOUT_S:.0f} s")
