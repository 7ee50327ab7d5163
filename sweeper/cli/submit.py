"""``sweeper submit``: a sweep as a job of a Ray cluster."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from sweeper.cli.jobs import DEFAULT_ADDRESS, Address, follow_job
from sweeper.cli.terminal import AllowLossy, NoPreflight, StudyFile, complaining, console, tell
from sweeper.config import NAME
from sweeper.errors import SweeperError

Forwarded = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME",
        help="give the job this variable of yours (HF_TOKEN, ...; repeatable). Everybody who may list the cluster's "
        "jobs can read its value",
    ),
]
Resource = Annotated[
    list[str] | None,
    typer.Option(
        "--driver-resource",
        metavar="NAME[=AMOUNT]",
        help="run the driver on a node with this Ray resource; default: the head node",
    ),
]
Python = Annotated[
    str,
    typer.Option(
        help="interpreter on the cluster's nodes that has Ray and sweeper's needs; a path, or found in PATH"
    ),
]


def submit(
    file: StudyFile,
    address: Address = DEFAULT_ADDRESS,
    name: Annotated[str | None, typer.Option(help="study name; default: the file's")] = None,
    max_trials: Annotated[int | None, typer.Option(min=1, help="override search.max_trials")] = None,
    remeasure_baseline: Annotated[
        bool, typer.Option("--remeasure-baseline", help="ignore the cached baseline")
    ] = False,
    allow_lossy: AllowLossy = False,
    no_preflight: NoPreflight = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="print the job's id and end; the job goes on")
    ] = False,
    env: Forwarded = None,
    working_dir: Annotated[
        Path | None,
        typer.Option(
            help="send this whole directory (100 MiB at most; .gitignore and .rayignore count), which holds FILE; "
            "default: FILE and its prompts"
        ),
    ] = None,
    python: Python = "python",
    driver_cpus: Annotated[float, typer.Option(min=0, help="CPUs to reserve for the driver")] = 0,
    driver_resource: Resource = None,
) -> None:
    """Run a sweep as a job of a Ray cluster, or continue it there; follow it until it ends.

    Checks the study first. Sends the study file, its prompts, and this very sweeper, so that all nodes run the same
    code; checkpoints must be where the nodes find them. Ctrl-C ends the following, not the job. ${VAR} is filled in
    here, except in engine.env and storage: there on the nodes. docs/jobs.md tells where the results are.

    Examples:
      sweeper submit search_spaces/llama31_8b_eagle3.yaml --address http://10.0.0.1:8265 --env HF_TOKEN
      sweeper status;  sweeper fetch llama31_8b_eagle3;  sweeper report llama31_8b_eagle3
    """
    from actors.connect import connect
    from sweeper.study_file.package import package_directory, package_study

    with complaining(), tempfile.TemporaryDirectory(prefix="sweeper-submit-") as scratch:
        if working_dir:
            package = package_directory(file, working_dir)
        else:
            package = package_study(file, Path(scratch))
        study = name or package.config.study
        if not NAME.fullmatch(study):
            raise SweeperError(f"--name {name}: letters, digits, '.', '_' and '-' only, at most 64")
        environment = _forwarded(env or [])
        resources = dict(_resource(text) for text in driver_resource or ())

        server = connect(address)

        from actors.jobs import Submission

        arguments = [
            *(["--max-trials", str(max_trials)] if max_trials else []),
            *(["--remeasure-baseline"] if remeasure_baseline else []),
            *(["--allow-lossy"] if allow_lossy else []),
            *(["--no-preflight"] if no_preflight else []),
        ]
        wanted = Submission(study, tuple(arguments), environment, python, driver_cpus, resources)
        job = server.submit(package, wanted)
        if no_wait:
            typer.echo(job)
            return
        for variable in sorted(set(package.cluster_variables) - environment.keys()):
            console.print(
                f"${{{variable}}} is filled in on the cluster's nodes; --env {variable} sends yours",
                highlight=False,
            )
        tell(f"Job {job} on {server.address}; Ctrl-C leaves it running")
        follow_job(server, job)


def _forwarded(names: list[str]) -> dict[str, str]:
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise SweeperError(f"--env {missing[0]}: this variable is not set here")
    return {name: os.environ[name] for name in names}


def _resource(text: str) -> tuple[str, float]:
    name, _, amount = text.partition("=")
    try:
        return name, float(amount or 1)
    except ValueError:
        raise SweeperError(f"--driver-resource {text}: NAME or NAME=AMOUNT") from None
