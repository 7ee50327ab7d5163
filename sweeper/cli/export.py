"""``sweeper export``: what a run found, as files that deploy it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from sweeper.cli.terminal import AllowLossy, AsJson, Run, complaining, tell, warn
from sweeper.errors import SweeperError

if TYPE_CHECKING:
    from reports.exports import Export


class ExportFormat(str, Enum):
    """Names of ``reports.exports.FORMATS``, which is not imported before it is needed."""

    sglang = "sglang"
    shell = "shell"
    kubernetes = "kubernetes"
    lws = "lws"
    compose = "compose"
    ray_serve = "ray-serve"
    kuberay = "kuberay"
    dynamo = "dynamo"
    helm = "helm"
    adaptive = "adaptive"
    all = "all"


def export(
    run: Run,
    format: Annotated[ExportFormat, typer.Option(help="what the file is for")] = ExportFormat.sglang,
    load: Annotated[
        str | None,
        typer.Option(
            help="the load it must be best at: 16, 'c=4 in=512-1023', 2.5/s; default: the objective"
        ),
    ] = None,
    trial: Annotated[
        int | None, typer.Option(help="a certain trial's config instead of the best one")
    ] = None,
    image: Annotated[str, typer.Option(help="container image; default: lmsysorg/sglang of the release")] = "",
    allow_unconfirmed: Annotated[
        bool, typer.Option("--allow-unconfirmed", help="export what was not measured again, too (flagged)")
    ] = False,
    allow_lossy: AllowLossy = False,
    as_json: AsJson = False,
) -> None:
    """Write the winner as a deployment file, with its evidence in comments; the plain server if nothing pays.

    Configs that may change the target's output (LOSSY), or that were not measured again before they won, are refused
    unless a flag allows them. Files go to RUN/deploy/. Formats (docs/deploy.md):

      sglang      YAML for python -m sglang.launch_server --config
      shell       a script
      kubernetes  Deployment, Service and volume        lws        LeaderWorkerSet: several nodes
      compose     docker compose                        helm       values for bjw-s' app-template
      ray-serve   config for serve deploy               kuberay    RayService
      dynamo      NVIDIA DynamoGraphDeployment
      adaptive    SGLang switches between the best chains per load (speculative-adaptive-config)
      all         every one that has a place for this server

    Examples:
      sweeper export cpu_tiny
      sweeper export cpu_tiny --format kubernetes --load 16
      sweeper export cpu_tiny --trial 3 --allow-unconfirmed
    """
    from reports.deployment.choice import Wishes
    from reports.exports import FORMATS, write_export
    from reports.study_report import build_report
    from sweeper.runs.directory import find_run, read_run

    left_out: dict[str, str] = {}
    done: list[Export] = []
    with complaining():
        directory = find_run(run)
        config, study = read_run(directory)
        found = build_report(config, study, allow_lossy=allow_lossy)
        for name in list(FORMATS) if format is ExportFormat.all else [format.value]:
            wishes = Wishes(name, image, load, trial, allow_unconfirmed, allow_lossy)
            try:
                done.append(write_export(config, found, directory, wishes))
            except SweeperError as error:
                if not done:  # what refuses the first format of all refuses every one
                    raise
                left_out[name] = str(error)
    if as_json:
        shown = [export.model_dump_json(indent=2) for export in done]
        typer.echo(shown[0] if format is not ExportFormat.all else f"[{','.join(shown)}]")
        return
    for export in done:
        _tell(export)
    for name, why in left_out.items():
        warn(f"{name}: not written: {why}")


def _tell(export: Export) -> None:
    flags = "".join(
        f", {flag}"
        for flag, applies in (
            ("LOSSY", export.lossy),
            ("UNCONFIRMED", export.speculates and not export.confirmed),
        )
        if applies
    )
    what = export.config if export.speculates else "no speculation, since no config is clearly faster"
    tell(f"{export.path}: {what}{flags}")
    tell(f"  {export.use}")
