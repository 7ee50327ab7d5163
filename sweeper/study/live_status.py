"""What a driver tells of its running sweep: a small file in the run directory, written anew every second or two.

Anybody may read it: ``sweeper status``, or a person with a copy of the run. Nothing hangs on it, so it is neither
synced nor waited for.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sweeper.driver.holder import Holder
from sweeper.study.surroundings import Glance, Tally

FILE = "status.json"
EVERY_S = 2.0
SILENT_S = 30.0
"""A driver that has written nothing for so long does not run, or hangs."""


@dataclass(frozen=True)
class ServerStatus:
    """One server at work; ``doing`` is the trial's name, ``config`` what it runs."""

    server: str
    doing: str
    config: str
    phase: str
    tok_s: float | None = None
    gpu_gib: float | None = None


@dataclass(frozen=True)
class LiveStatus:
    """Where a sweep stands. ``written_at`` is UTC, in ISO format; ``tally``: counts, the best config, the ETA."""

    study: str
    written_at: str
    driver: Holder
    tally: Tally
    servers: tuple[ServerStatus, ...] = ()
    over: bool = False

    def age_s(self, now: datetime) -> float:
        return (now - datetime.fromisoformat(self.written_at)).total_seconds()

    def running(self, now: datetime) -> bool:
        """Whether its driver is at work, as far as can be known from here."""
        return not self.over and not self.driver.gone() and self.age_s(now) < SILENT_S


_json: TypeAdapter[LiveStatus] = TypeAdapter(LiveStatus)


def read_status(run: Path) -> LiveStatus | None:
    """What the last driver of a run wrote; None where none has, or where it cannot be read."""
    try:
        return _json.validate_json((run / FILE).read_bytes())
    except (OSError, ValidationError):
        return None


class StatusFile:
    """Writes the status of one run, no more often than is of use."""

    def __init__(self, run: Path, study: str) -> None:
        self._path, self._study = run / FILE, study
        self._driver = Holder.this_process(run)
        self._written = -EVERY_S
        self._last = Tally(0)

    def write(self, tally: Tally, servers: Sequence[ServerStatus], over: bool = False) -> None:
        now = time.monotonic()
        self._last = tally
        if not over and now - self._written < EVERY_S:
            return
        self._written = now
        at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        status = LiveStatus(self._study, at, self._driver, tally, tuple(servers), over)
        scratch = self._path.with_name(f"{FILE}.{os.getpid()}.tmp")
        with contextlib.suppress(OSError):  # a full disk is told elsewhere
            scratch.write_bytes(_json.dump_json(status, indent=1))
            scratch.replace(self._path)

    def close(self) -> None:
        """Say that the driver has ended."""
        self.write(self._last, (), over=True)


def server_statuses(glances: Mapping[str, Glance], configs: Mapping[str, str]) -> list[ServerStatus]:
    """From what the busy servers say, and the configs of the trials, both by tag."""
    return [
        ServerStatus(g.server, tag, configs.get(tag, ""), g.phase, g.tok_s, g.gpu_gib)
        for tag, g in glances.items()
    ]
