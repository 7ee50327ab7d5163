"""Reads a job's log while it grows, over one connection to the job server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import aiohttp
from ray.job_submission import JobSubmissionClient

QUIET_S = 60.0
"""A log without a new line for this long is asked for afresh: a dead connection does not tell."""


class LogLostError(Exception):
    """The connection broke, or was silent for too long."""


def tail(client: JobSubmissionClient, job_id: str) -> Iterator[str]:
    """The log from its beginning, in pieces, until the server says that this was all.

    Raises:
        LogLostError: there may be more.
    """
    pieces: Any = client.tail_job_logs(job_id)
    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                text = loop.run_until_complete(_next(pieces))
            except StopAsyncIteration:
                return
            except (asyncio.TimeoutError, RuntimeError, OSError, aiohttp.ClientError) as error:
                raise LogLostError(str(error)) from None
            yield text
    finally:
        _close(loop, pieces)


def _close(loop: asyncio.AbstractEventLoop, pieces: Any) -> None:
    """End the connection, also where Ctrl-C came in the middle of a wait."""
    waiting = asyncio.all_tasks(loop)
    for task in waiting:
        task.cancel()
    if waiting:
        loop.run_until_complete(asyncio.wait(waiting))
    with suppress(Exception):
        loop.run_until_complete(pieces.aclose())
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


async def _next(pieces: Any) -> str:
    return str(await asyncio.wait_for(pieces.__anext__(), QUIET_S))
