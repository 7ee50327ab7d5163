"""Ports for one launch: below the ephemeral range, free now, and not promised to another launch.

SGLang binds its HTTP port only after loading, minutes after anyone could have looked; NCCL and clients take
ephemeral ports meanwhile. So every launch gets a block of its own, below the kernel's ephemeral range, and
holds a lock on it until its server is gone: two launches on one machine never share a block.
"""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweeper.node.machine_locks import lock_directory, try_lock

FIRST, LAST = 12_000, 22_000
"""22000 to 29999 is where SGLang (0.5.22 and later) looks for NCCL ports of its own, 32768 the usual start of the
ephemeral range."""

BLOCK = 16
"""The HTTP port and, next to it, the one where ranks meet: NCCL's store. From that one SGLang counts up to 13 further
under DP attention."""

LOCKS = "sweeper-ports"

EVERYWHERE = ""
"""All addresses of the machine: ranks of other nodes come in from outside."""

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


class NoPortError(OSError):
    """All blocks are taken."""


@contextmanager
def port_block() -> Iterator[int]:
    """The first port of a free block of BLOCK, kept for this process as long as the context lasts.

    Raises:
        NoPortError: every block below the ephemeral range is taken.
    """
    end = min(LAST, _ephemeral_start())
    if end - FIRST < 2 * BLOCK:  # a machine whose ephemeral range begins early: there is no better place
        end = LAST
    blocks = list(range(FIRST, end - BLOCK, BLOCK))
    random.SystemRandom().shuffle(blocks)
    directory = lock_directory(LOCKS)
    for first in blocks:
        if not all(is_free(port, EVERYWHERE) for port in range(first, first + BLOCK)):
            continue
        lock = try_lock(directory / str(first))
        if lock is None:
            continue
        try:
            yield first
        finally:
            Path(lock.name).unlink(missing_ok=True)
            lock.close()
        return
    raise NoPortError(f"no free block of {BLOCK} ports between {FIRST} and {blocks[-1] if blocks else LAST}")


def forget_blocks_of_the_dead() -> None:
    """Remove the lock files of processes that were killed; the locks themselves went with them."""
    with contextlib.suppress(OSError):
        for path in lock_directory(LOCKS).iterdir():
            lock = try_lock(path)
            if lock is not None:
                path.unlink(missing_ok=True)
                lock.close()


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could bind the port now (as SGLang does: address reuse allowed)."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
        return True


def _ephemeral_start() -> int:
    try:
        return int(EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return LAST
