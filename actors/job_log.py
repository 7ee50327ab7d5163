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


def tail(client: JobSubmissionClient, job_id: str) -> Iterator[str]:
    """The log from its beginning, in pieces, until the job is over or the connection breaks."""
    pieces: Any = client.tail_job_logs(job_id)
    loop = asyncio.new_event_loop()
    try:
        while True:
            try:
                text = loop.run_until_complete(_next(pieces))
            except StopAsyncIteration:
                return
            except (asyncio.TimeoutError, RuntimeError, OSError, aiohttp.ClientError):
                return
            yield text
    finally:
        with suppress(Exception):
            loop.run_until_complete(pieces.aclose())
        loop.close()


async def _next(pieces: Any) -> str:
    return str(await asyncio.wait_for(pieces.__anext__(), QUIET_S))
