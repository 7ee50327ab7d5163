"""A ``/generate`` that says exactly what a test tells it to, on aiohttp's server, in a thread of this process."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from sweeper.server.command import Address

KEY = "the key"


def event(
    count: int, text: str = "", ids: Sequence[int] = (), finish: str | None = None, **meta: Any
) -> bytes:
    """One chunk, in SGLang's form."""
    reason = {"type": finish, "length": count} if finish else None
    info = {
        "completion_tokens": count,
        "prompt_tokens": 8,
        "cached_tokens": 0,
        "finish_reason": reason,
        **meta,
    }
    return b"data: %s\n\n" % json.dumps({"text": text, "output_ids": list(ids), "meta_info": info}).encode()


def incremental(texts: Sequence[str]) -> list[bytes]:
    """A reply of a token per text, as with --incremental-streaming-output."""
    last = len(texts)
    return [event(i, text, [i], "stop" if i == last else None) for i, text in enumerate(texts, 1)]


def cumulative(texts: Sequence[str]) -> list[bytes]:
    """The same reply without it: every chunk repeats all so far."""
    last = len(texts)
    return [
        event(i, "".join(texts[:i]), range(1, i + 1), "stop" if i == last else None)
        for i in range(1, last + 1)
    ]


def text_alone_cumulative(texts: Sequence[str]) -> list[bytes]:
    """The same reply as --stream-output gives up to 0.5.9."""
    last = len(texts)
    return [event(i, "".join(texts[:i]), [i], "stop" if i == last else None) for i in range(1, last + 1)]


@dataclass
class Seen:
    """What the server saw. ``times`` are seconds of the performance counter when the requests came."""

    address: Address
    bodies: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    connections: set[object] = field(default_factory=set)
    in_flight: int = 0
    most_in_flight: int = 0
    dropped: int = 0

    @property
    def texts(self) -> list[str]:
        return [body["text"] for body in self.bodies]


Say = Callable[[bytes], Awaitable[None]]
Script = Callable[[Say, str], Awaitable[None]]
"""Answers a prompt by awaiting ``say`` for every part of the body."""


def replying(chunks: Sequence[bytes], pause_s: float = 0.0) -> Script:
    """Says the same to everybody, with a pause before every chunk."""

    async def script(say: Say, _: str) -> None:
        for chunk in chunks:
            await asyncio.sleep(pause_s)
            await say(chunk)

    return script


class HangupError(Exception):
    """Raised by a script: the server cuts the connection."""


@contextmanager
def scripted_server(script: Script, keepalive_timeout: float = 30, close: bool = False) -> Iterator[Seen]:
    """Serves until the block ends; a wrong key gets 401. ``close``: every reply ends its connection."""
    loop = asyncio.new_event_loop()
    seen: list[Seen] = []

    async def generate(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {KEY}":
            return web.Response(status=401, text="Unauthorized")
        server = seen[0]
        server.times.append(time.perf_counter())
        server.bodies.append(await request.json())
        server.connections.add(request.transport)
        server.in_flight += 1
        server.most_in_flight = max(server.most_in_flight, server.in_flight)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if close:
            response.force_close()
        try:
            await response.prepare(request)
            await script(response.write, server.texts[-1])
            await response.write(b"data: [DONE]\n\n")
        except HangupError:
            assert request.transport is not None
            request.transport.abort()
        except (asyncio.CancelledError, ConnectionError):
            server.dropped += 1
            raise
        finally:
            server.in_flight -= 1
        return response

    async def start() -> tuple[web.AppRunner, int]:
        app = web.Application()
        app.add_routes([web.post("/generate", generate)])
        runner = web.AppRunner(
            app, handler_cancellation=True, keepalive_timeout=keepalive_timeout, shutdown_timeout=0.1
        )
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return runner, runner.addresses[0][1]

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    runner, port = asyncio.run_coroutine_threadsafe(start(), loop).result(10)
    seen.append(Seen(Address(port, KEY)))
    try:
        yield seen[0]
    finally:
        asyncio.run_coroutine_threadsafe(runner.cleanup(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
