"""Ranks of a stand-in server on several nodes: they meet at rank 0's address and take each other down, as NCCL does."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import sys
import threading
import time

from aiohttp import web

PATIENCE_S = 30.0


def _meeting(args: argparse.Namespace) -> tuple[str, int]:
    host, port = args.dist_init_addr.rsplit(":", 1)
    return host, int(port)


def _die_with(connection: socket.socket) -> None:
    """The other end is gone: so is this rank, by its own hand, as SGLang does it."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    print("RuntimeError: Connection closed by peer", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def meet(args: argparse.Namespace) -> None:
    """Rank 0 waits for all others; the others go to rank 0, and stay as long as it lives. One rank: nothing to do."""
    ranks = int(args.nnodes or 1)
    if ranks == 1:
        return
    if int(args.node_rank or 0) == 0:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(_meeting(args))
            listener.listen()
            listener.settimeout(PATIENCE_S)
            others = [listener.accept()[0] for _ in range(1, ranks)]
        for other in others:
            other.settimeout(None)
            threading.Thread(target=_die_with, args=(other,), daemon=True).start()
        return
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            first = socket.create_connection(_meeting(args), timeout=5)
            break
        except OSError:
            if time.monotonic() > deadline:
                sys.exit("rank 0 does not come")
            time.sleep(0.1)
    first.settimeout(None)
    threading.Thread(target=_die_with, args=(first,), daemon=True).start()
    _serve_health_only(args)


def _serve_health_only(args: argparse.Namespace) -> None:
    async def fine(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.add_routes([web.get("/health", fine)])
    print(f"rank {args.node_rank} serves its health only", flush=True)
    web.run_app(app, host=args.host, port=int(args.port), print=None, shutdown_timeout=0.5)
    sys.exit(0)
