"""``sweeper logs``, ``stop`` and ``fetch``: the sweeps of a Ray cluster."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweeper.cli.run import INTERRUPTED
from sweeper.cli.terminal import complaining, console, tell
from sweeper.config import NAME
from sweeper.errors import SweeperError

if TYPE_CHECKING:
    from actors.job import Job
    from actors.jobs import JobServer

DEFAULT_ADDRESS = "http://127.0.0.1:8265"

Address = Annotated[
    str,
    typer.Option(envvar="RAY_API_SERVER_ADDRESS", help="job server of the cluster, http://HEAD:8265"),
]
Which = Annotated[str, typer.Argument(metavar="ID|STUDY", help="a job's id, or a study: its newest job")]


def logs(
    which: Which,
    address: Address = DEFAULT_ADDRESS,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="go on until the job ends")] = False,
) -> None:
    """Print what a job's driver printed."""
    from actors.connect import connect

    with complaining():
        server = connect(address)
        job = server.find(which)
        if follow:
            follow_job(server, job.id)
        else:
            sys.stdout.write(server.log(job.id))


def stop(which: Which, address: Address = DEFAULT_ADDRESS) -> None:
    """End a job: its servers stop, its running trials go back into the queue, and submitting it again continues it."""
    from actors.connect import connect

    with complaining():
        server = connect(address)
        job = server.find(which)
        if job.over:
            raise SweeperError(f"{job.id}: is not running ({job.state})")
        with console.status(f"Waiting for the servers of {job.study} to end"):
            ended = server.stop(job.id)
    tell(f"{job.id}: {ended.state}; sweeper submit with the same file continues study {job.study!r}")


def fetch(
    which: Which,
    address: Address = DEFAULT_ADDRESS,
    to: Annotated[Path, typer.Option(help="folder that gets the run directory")] = Path("runs"),
    artifacts: Annotated[
        str | None, typer.Option(help="take it from this URL (the study's `artifacts`), without a cluster")
    ] = None,
    python: Annotated[
        str | None, typer.Option(help="interpreter on the nodes; default: the job's own, or python")
    ] = None,
) -> None:
    """Copy a study's run directory from the cluster, whatever became of its job: running, over, stopped or killed.

    The newest copy on any node is taken. A copy fetched earlier is replaced; a run that was made here never is.

    Example:  sweeper fetch cpu_tiny && sweeper report cpu_tiny
    """
    from actors.connect import connect

    with complaining():
        if artifacts:
            path = _from_artifacts(artifacts, which, to)
        else:
            server = connect(address)
            job = next((job for job in reversed(server.jobs()) if which in (job.id, job.study)), None)
            study = job.study if job and job.study else which
            if not NAME.fullmatch(study):
                raise SweeperError(f"{which}: neither the id of a job on {server.address} nor a study")

            from actors.fetch import Wanted, fetch_run

            runs_dir = job.runs_dir if job else "runs"
            wanted = Wanted(study, runs_dir, python or (job.python if job else "python"))
            with console.status("Asking the nodes"):
                path = fetch_run(server, wanted, to, tell)
    tell(f"{path}/ is here; next: sweeper report {path}")


def _from_artifacts(url: str, study: str, to: Path) -> Path:
    from sweeper.runs.fetched import mark, require_replaceable
    from sweeper.runs.mirror import Mirror

    if not NAME.fullmatch(study):
        raise SweeperError(f"{study}: no study has such a name")
    target = to / study
    require_replaceable(target)
    Mirror(url, study).pull(target)
    mark(target, url)
    return target


def follow_job(server: JobServer, job_id: str) -> None:
    """Print the log until the job ends, and end as it did."""
    try:
        for text in server.follow(job_id):
            sys.stdout.write(text)
            sys.stdout.flush()
    except KeyboardInterrupt:
        at = "" if server.address == DEFAULT_ADDRESS else f" --address {server.address}"
        tell(
            f"\nThe job goes on. Look again: sweeper logs -f {job_id}{at}; end it: sweeper stop {job_id}{at}"
        )
        raise typer.Exit(INTERRUPTED) from None
    _end_as(server.result(job_id))


def _end_as(job: Job) -> None:
    """Exit codes: 0 done, 130 stopped, else the driver's own (2: bad input), or 1."""
    state = str(job.state)
    if state == "SUCCEEDED":
        tell(f"{job.id}: done; next: sweeper fetch {job.study}")
        return
    if state == "STOPPED" or job.exit_code == INTERRUPTED:
        tell(f"{job.id}: stopped; sweeper submit with the same file continues study {job.study!r}")
        raise typer.Exit(INTERRUPTED)
    reason = job.message.splitlines()[0] if job.message else "no reason given"
    if job.exit_code == 127:
        reason += "; no such interpreter there: name it with --python"
    tell(f"{job.id}: {state}: {reason}")
    raise typer.Exit(job.exit_code if job.exit_code in (1, 2) else 1)
