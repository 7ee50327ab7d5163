"""``sweeper status``: where a sweep stands, on this machine or as a job of a Ray cluster."""

from __future__ import annotations

import os
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import TypeAdapter
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from sweeper.cli.jobs import DEFAULT_ADDRESS
from sweeper.cli.terminal import AsJson, complaining, console, tell
from sweeper.errors import RunNotFoundError, SweeperError

if TYPE_CHECKING:
    from actors.job import Job
    from sweeper.runs.directory import RunDirectory
    from sweeper.study.live_status import LiveStatus

LOOK_S = 2.0
PLAIN_EVERY_S = 15.0


def status(
    which: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN|ID|STUDY]", help="a run here, or a job of the cluster; default: all jobs"
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            envvar="RAY_API_SERVER_ADDRESS",
            help=f"job server of a cluster, http://HEAD:8265; default: {DEFAULT_ADDRESS}",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="go on until the sweep ends")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how far a sweep is: trials, the best config, the time left, and what every server does.

    A run directory, or without --address a study that has one under runs/, is looked at here, also while another
    process drives it. Otherwise the cluster's jobs are listed; one that is named comes with its servers.

    Examples:
      sweeper status cpu_tiny --follow
      sweeper status --address http://HEAD:8265
    """
    with complaining():
        run = _local_run(which, address) if which else None
        if run:
            _follow_run(run) if follow else _show_run(run, as_json)
            return
        if follow or as_json:
            raise SweeperError(
                "--follow and --json are for runs of this machine; sweeper logs -f follows a cluster's job"
            )
        _show_jobs(which, address or DEFAULT_ADDRESS)


def _local_run(which: str, address: str | None) -> RunDirectory | None:
    """A path always means a run here; a name does where no cluster is named."""
    from sweeper.runs.directory import find_run

    is_path = os.sep in which
    if address and not is_path:
        return None
    try:
        return find_run(which)
    except RunNotFoundError:
        if is_path:
            raise
        return None


def _status(run: RunDirectory) -> LiveStatus:
    from sweeper.study.live_status import read_status

    found = read_status(run.path)
    if found is None:
        raise SweeperError(
            f"run {run.path}: no driver of this release has measured anything in it; see sweeper report {run.path}"
        )
    return found


def _show_run(run: RunDirectory, as_json: bool) -> None:
    from reports.status import view
    from sweeper.study.live_status import LiveStatus

    found = _status(run)
    if as_json:
        typer.echo(TypeAdapter(LiveStatus).dump_json(found, indent=2).decode())
        return
    now = datetime.now(timezone.utc)
    console.print(view(found, now), highlight=False)
    if not found.running(now):
        tell(f"next: sweeper report {run.path}")


def _follow_run(run: RunDirectory) -> None:
    """A table that stays in its place on a terminal; elsewhere a line whenever something has changed."""
    from reports.status import standing, view

    found, now = _status(run), datetime.now(timezone.utc)
    if console.is_terminal:
        with Live(view(found, now), console=console, refresh_per_second=2) as live:
            while found.running(now):
                time.sleep(LOOK_S)
                found, now = _status(run), datetime.now(timezone.utc)
                live.update(view(found, now))
        return
    said, said_at = "", -PLAIN_EVERY_S
    while True:
        servers = "".join(f"; {s.doing} {s.phase}" for s in found.servers)
        line = standing(found, now) + servers
        over = not found.running(now)
        if line != said and (over or time.monotonic() - said_at >= PLAIN_EVERY_S):
            tell(line)
            said, said_at = line, time.monotonic()
        if over:
            return
        time.sleep(LOOK_S)
        found, now = _status(run), datetime.now(timezone.utc)


def _show_jobs(which: str | None, address: str) -> None:
    from actors.connect import connect

    server = connect(address)
    jobs = [job for job in server.jobs() if which in (None, job.id, job.study)] or (
        [server.find(which)] if which else []
    )
    if not jobs:
        tell(f"no sweeps on {server.address}")
        return
    table = Table("job", "study", "state", "started", "progress", box=None)
    for job in jobs:
        began = job.began.astimezone().strftime("%Y-%m-%d %H:%M:%S") if job.began else ""
        table.add_row(job.id, job.study or "?", str(job.state), began, escape(job.progress))
    console.print(table)
    if which and jobs[-1].servers and not jobs[-1].over:
        console.print(_servers(jobs[-1]))


def _servers(job: Job) -> Table:
    table = Table("trial", "phase, tok/s, GPU memory", box=None)
    for doing, phase in job.servers:
        table.add_row(escape(doing), escape(phase))
    return table
