"""Connections: the time of a token is that of its read, and an idle connection is not trusted for long."""

from __future__ import annotations

import asyncio
import time

import pytest
import uvloop

from sweeper.load import connection as module
from sweeper.load.connection import Backlog, Connection, Connections
from sweeper.load.reply import Reply
from tests.load.scripted_server import incremental, replying, scripted_server

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Deaf(asyncio.Transport):
    """A transport that takes everything and sends nothing."""

    def write(self, data: object) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return False


def chunked(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def test_a_token_that_waits_to_be_decoded_keeps_the_time_of_its_read() -> None:
    first, second = incremental([" a", " b"])

    async def go() -> tuple[Reply, float]:
        connection = Connection(Backlog())
        connection.connection_made(Deaf())
        reply = Reply(False, lambda at: None)
        exchange = asyncio.ensure_future(connection.exchange(b"", reply, 10))
        await asyncio.sleep(0)
        connection.data_received(HEAD + chunked(first))
        read = time.perf_counter()
        time.sleep(0.1)  # this process is busy, and nothing is decoded
        assert reply.count == 0
        connection.data_received(chunked(second) + b"0\r\n\r\n")
        await exchange
        return reply, read

    reply, read = asyncio.run(go())
    assert reply.arrival_s[0] <= read
    assert reply.arrival_s[1] - reply.arrival_s[0] >= 0.1


def test_bytes_are_decoded_soon_though_the_reply_goes_on() -> None:
    async def go() -> int:
        connection = Connection(Backlog())
        connection.connection_made(Deaf())
        reply = Reply(False, lambda at: None)
        exchange = asyncio.ensure_future(connection.exchange(b"", reply, 10))
        await asyncio.sleep(0)
        connection.data_received(HEAD + chunked(incremental([" a", " b"])[0]))
        await asyncio.sleep(0.05)
        exchange.cancel()
        return reply.count

    assert asyncio.run(go()) == 1


def test_a_connection_that_lay_idle_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go(pause_s: float) -> None:
        connections = Connections(server.address, 10)
        for _ in range(2):
            await connections.post(b'{"text": "x", "sampling_params": {}}', Reply(False, lambda at: None))
            await asyncio.sleep(pause_s)
        connections.close()

    monkeypatch.setattr(module, "IDLE_S", 0.1)
    with scripted_server(replying(incremental([" a"]))) as server:
        asyncio.run(go(0.0))
        assert len(server.connections) == 1
    with scripted_server(replying(incremental([" a"]))) as server:
        asyncio.run(go(0.3))
        assert len(server.connections) == 2


def test_a_connection_that_broke_before_its_first_request_is_an_os_error() -> None:
    """As when the server is killed between accepting it and the request: not the client's RuntimeError."""

    async def go() -> None:
        loop = asyncio.get_running_loop()
        address = server.address.host, server.address.port
        transport, connection = await loop.create_connection(lambda: Connection(Backlog()), *address)
        transport.abort()
        await asyncio.sleep(0.01)
        with pytest.raises(ConnectionError, match="before it was used"):
            await connection.exchange(b"", Reply(False, lambda at: None), 10)

    with scripted_server(replying(incremental([" a"]))) as server:
        uvloop.run(go())


def test_a_connection_that_the_server_closed_is_replaced() -> None:
    async def go() -> None:
        connections = Connections(server.address, 10)
        for _ in range(2):
            await connections.post(b'{"text": "x", "sampling_params": {}}', Reply(False, lambda at: None))
            await asyncio.sleep(0.4)
        connections.close()

    with scripted_server(replying(incremental([" a"])), keepalive_timeout=0.1) as server:
        asyncio.run(go())
        assert len(server.connections) == 2
