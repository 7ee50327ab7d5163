"""Connections to one server; what they read carries the time at which it was read from the socket.

At 256 streams of 50 tokens per second there is one every 78 µs, and a batch's tokens come all at once. So a read only
notes the time and the bytes; they are decoded in the pauses between the reads, in short slices.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import cast

from sweeper.load.reply import Reply
from sweeper.load.response import Response
from sweeper.server.command import Address

REST_S = 0.002
"""How long bytes may wait to be decoded, so that a burst of reads comes first."""
SLICE_S = 0.00025
"""Seconds of decoding at a time; a read waits no longer, and its time is that much late at most."""
LAST_CHUNK = b"0\r\n\r\n"
IDLE_S = 1.0
"""A connection that nobody used for longer is replaced: a server may be about to close it (uvicorn: after 5 s)."""
LONGEST_ERROR = 4096


class HttpError(Exception):
    """The server answered with another status than 200."""


class Backlog:
    """The connections with bytes that nobody has looked at."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Connection] = deque()
        self._planned: asyncio.Handle | None = None

    def add(self, connection: Connection) -> None:
        self._waiting.append(connection)
        if self._planned is None:
            self._planned = self._loop.call_later(REST_S, self._decode)

    def _decode(self) -> None:
        until = time.perf_counter() + SLICE_S
        while self._waiting and time.perf_counter() < until:
            self._waiting.popleft().decode()
        # call_soon lets the event loop read from every ready socket before it comes back here.
        self._planned = self._loop.call_soon(self._decode) if self._waiting else None


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._reads: list[tuple[float, bytes]] = []
        self._reply: Reply | None = None
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has the methods, but is none
        # uvloop would write only when all tasks had their turn, long after ``sent_at`` if many end at once.
        self._transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if not self._reads:
            self._backlog.add(self)
        self._reads.append((now, data))
        if data.endswith(LAST_CHUNK):  # the reply may be complete: the next request must not wait
            self.decode()

    def connection_lost(self, exc: Exception | None) -> None:
        self.decode()
        if self._reply is not None:
            self._response.connection_ended()
            lost = exc or ConnectionError("the server closed the connection before the end of its reply")
            self._finish(None if self._response.complete else lost)

    async def exchange(self, request: bytes, reply: Reply, timeout_s: float) -> None:
        """Send a request and read its reply to the end.

        Raises:
            asyncio.TimeoutError: it took longer than ``timeout_s``.
            HttpError: the status is not 200.
            OSError: the connection broke.
            ValueError: the reply is no HTTP; and whatever ``Reply.feed`` raises.
        """
        if (
            self._transport.is_closing()
        ):  # uvloop would say RuntimeError, which is nobody's word for a dead server
            raise ConnectionError("the server closed the connection before it was used")
        self._response = Response()
        self._error_body = b""
        self._reply = reply
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        timer = loop.call_later(timeout_s, self._finish, asyncio.TimeoutError())
        reply.sent_at = time.perf_counter()
        self._transport.write(request)
        try:
            await self._done
        finally:
            timer.cancel()
        self.idle_since = time.perf_counter()
        if self._response.status != 200:
            raise HttpError(
                f"HTTP {self._response.status}: {self._error_body.decode('utf-8', 'replace')[:300]}"
            )

    def decode(self) -> None:
        """Work off all that was read. A problem goes to whoever waits in ``exchange``."""
        reads, self._reads = self._reads, []
        try:
            for at, data in reads:
                if self._reply is None:
                    return
                self._pass_on(self._reply, data, at)
        except Exception as problem:
            self._finish(problem)

    def _pass_on(self, reply: Reply, data: bytes, at: float) -> None:
        for piece in self._response.feed(data):
            if self._response.status == 200:
                reply.feed(piece, at)
            elif len(self._error_body) < LONGEST_ERROR:
                self._error_body += piece
        if self._response.complete:
            self._finish(None)

    def _finish(self, problem: Exception | None) -> None:
        self._reply = None
        if self._done.done():  # whoever waited was cancelled
            return
        if problem is None:
            self._done.set_result(None)
        else:
            self._done.set_exception(problem)

    @property
    def reusable(self) -> bool:
        fresh = time.perf_counter() - self.idle_since < IDLE_S
        return fresh and self._response.keep_alive and not self._transport.is_closing()

    def abort(self) -> None:
        self._reply = None
        self._transport.abort()


class Connections:
    """Opens as many connections as there are requests in flight, and uses them again."""

    def __init__(self, address: Address, timeout_s: float) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._head = (
            f"POST /generate HTTP/1.1\r\nHost: {address.host}:{address.port}\r\n"
            f"Authorization: Bearer {address.api_key}\r\nContent-Type: application/json\r\n"
        ).encode()
        self._backlog = Backlog()
        self._idle: list[Connection] = []

    async def post(self, body: bytes, reply: Reply) -> None:
        """POST to /generate and read the reply.

        Raises what ``Connection.exchange`` does. The connection of a failed or cancelled request is closed, which
        makes the server abort it.
        """
        connection = await self._connection()
        try:
            request = b"%sContent-Length: %d\r\n\r\n%s" % (self._head, len(body), body)
            await connection.exchange(request, reply, self._timeout_s)
        except BaseException:
            connection.abort()
            raise
        self._idle.append(connection)

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable:
                return connection
            connection.abort()
        loop = asyncio.get_running_loop()
        connecting = loop.create_connection(
            lambda: Connection(self._backlog), self._address.host, self._address.port
        )
        _, fresh = await asyncio.wait_for(connecting, self._timeout_s)
        return fresh

    def close(self) -> None:
        for connection in self._idle:
            connection.abort()
