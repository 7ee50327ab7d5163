"""Who drives a study, and whether that process is surely gone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path


@dataclass(frozen=True)
class Holder:
    """A process that drives a study, as others may see it.

    ``place`` is one boot of one machine, and the process namespace in which ``pid`` counts; ``started`` is the
    process's start in ticks after that boot. Together they name a process once and for all.
    """

    pid: int
    started: int
    place: str
    host: str
    since: str
    run: str

    @classmethod
    def this_process(cls, run: Path) -> Holder:
        pid = os.getpid()
        since = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        return cls(pid, start_of(pid) or 0, _place(), os.uname().nodename, since, str(run.resolve()))

    def gone(self) -> bool:
        """Whether it has surely ended; False where that cannot be known from here."""
        return bool(self.place) and self.place == _place() and start_of(self.pid) != self.started

    def __str__(self) -> str:
        return f"pid {self.pid} on {self.host} since {self.since}, run directory {self.run}"


def _place() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def start_of(pid: int) -> int | None:
    """Start of a process in ticks after boot (field 22 of ``/proc/PID/stat``); None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
