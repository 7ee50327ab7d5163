"""Where a running sweep stands, in a terminal: one line, and a table of its servers."""

from __future__ import annotations

from datetime import datetime, timedelta

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from reports.live import summary
from sweeper.study.live_status import SILENT_S, LiveStatus


def standing(status: LiveStatus, now: datetime) -> str:
    """``cpu_tiny: 3/9 trials (1 failed, 1 running), best ..., ETA 0:04:10``, and whether anybody drives it."""
    line = f"{status.study}: {summary(status.tally)}"
    if status.over:
        return f"{line}; its driver has ended"
    if status.driver.gone():
        return f"{line}; its driver is gone (pid {status.driver.pid}): sweeper run with the same file continues it"
    age = status.age_s(now)
    if age > SILENT_S:
        said = timedelta(seconds=round(age))
        return f"{line}; no sign of life for {said} from its driver on {status.driver.host}"
    return line


def server_table(status: LiveStatus) -> Table:
    """One row per busy server; GPU memory only where there are GPUs."""
    memory = any(server.gpu_gib is not None for server in status.servers)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("server", "trial", "config", "phase"):
        table.add_column(heading)
    table.add_column("tok/s", justify="right")
    if memory:
        table.add_column("GPU GiB", justify="right")
    for server in status.servers:
        cells = [Text(cell) for cell in (server.server, server.doing, server.config, server.phase)]
        numbers = [_number(server.tok_s, ".0f"), *([_number(server.gpu_gib, ".1f")] if memory else [])]
        table.add_row(*cells, *numbers)
    return table


def view(status: LiveStatus, now: datetime) -> RenderableType:
    line = Text(standing(status, now))
    return Group(line, server_table(status)) if status.servers and status.running(now) else line


def _number(value: float | None, spec: str) -> str:
    return "" if value is None else format(value, spec)
