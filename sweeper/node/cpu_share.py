"""CPUs of a server's own, where several servers share a node.

A CPU belongs to whoever holds the lock on its file in the node's temporary directory, so that actors of several
studies agree without talking, and a killed one holds nothing back. The files stay: only the locks mean something.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from sweeper.node.machine_locks import lock_directory, try_lock

PCI = Path("/sys/bus/pci/devices")


class CpuShare:
    """Takes ``1 / sharers`` of the CPUs this process may use, for it and its children; ``close`` gives them back.

    CPUs next to ``near`` (PCI addresses of its GPUs) come first. Where too few are left, or there are fewer CPUs
    than sharers, the process keeps all it has.
    """

    def __init__(self, sharers: int, near: Sequence[str] = ()) -> None:
        self._before = os.sched_getaffinity(0)
        self._held: dict[int, IO[str]] = {}
        size = len(self._before) // sharers
        if sharers > 1 and size:
            self._take(size, near)

    @property
    def cpus(self) -> frozenset[int]:
        """The CPUs that are this process's own; empty where it shares all."""
        return frozenset(self._held)

    def _take(self, size: int, near: Sequence[str]) -> None:
        try:
            directory = lock_directory("sweeper-cpus")
        except OSError:
            return
        close = {cpu for address in near for cpu in cpus_of_device(address)}
        for cpu in sorted(self._before, key=lambda cpu: (cpu not in close, cpu)):
            if len(self._held) == size:
                break
            file = try_lock(directory / str(cpu))
            if file is not None:
                self._held[cpu] = file
        if len(self._held) < size:
            self.close()
        else:
            _confine_to(set(self._held))

    def close(self) -> None:
        """Give the CPUs back."""
        _confine_to(self._before)
        for file in self._held.values():
            file.close()
        self._held.clear()


def _confine_to(cpus: set[int]) -> None:
    """Every thread of this process; its children start where the thread is that starts them."""
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):  # it ended meanwhile
            os.sched_setaffinity(int(thread), cpus)


def cpus_of_device(address: str) -> set[int]:
    """CPUs next to a PCI device (``00000000:3B:00.0``); empty where the machine does not tell."""
    domain, _, rest = address.lower().partition(":")
    try:
        text = (PCI / f"{domain[-4:]}:{rest}" / "local_cpulist").read_text()
    except OSError:
        return set()
    return parse_cpu_list(text)


def parse_cpu_list(text: str) -> set[int]:
    """``0-3,8`` -> {0, 1, 2, 3, 8}"""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus
