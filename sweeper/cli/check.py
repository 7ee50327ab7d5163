"""``sweeper check``: what a study file would launch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter
from rich.markup import escape
from rich.table import Table

from reports.preflight import show_drafts
from sweeper.check import CheckReport, check_study
from sweeper.cli.terminal import AsJson, complaining, complaints, console
from sweeper.drafts.preflight import DraftReport, Pair, Serving, check_pair, open_target
from sweeper.errors import SweeperError
from sweeper.records import Interval
from sweeper.rules.algorithms import ALGORITHMS
from sweeper.study_file.reading import load_study_file


def check(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="study file (YAML); examples in search_spaces/")
    ] = None,
    draft: Annotated[
        str | None, typer.Option(help="without FILE: a draft checkpoint, directory or hub id")
    ] = None,
    target: Annotated[str | None, typer.Option(help="without FILE: its target, directory or hub id")] = None,
    algorithm: Annotated[
        str, typer.Option(help="without FILE: the algorithm that the draft is to run under")
    ] = "EAGLE3",
    acceptance_map: Annotated[
        Path | None, typer.Option(help="file of `sweeper map`: show each config's predicted accept length")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a study file would launch, without launching anything; or what is wrong with one draft.

    Prints how many combinations were asked for, how many distinct valid configs remain, which requests run as
    the same effective config (for instance: topk 1 forces num_draft_tokens = num_steps + 1), which ones SGLang
    would refuse, what the drafts' own files tell (preflight: docs/drafts.md), the flags that both arms share and why,
    and the server command of the first trial. Flags in engine.extra_args are looked up in the installed SGLang.
    Exit code 2 if the file has an error, or preflight leaves no config to launch.

    Examples:
      sweeper check search_spaces/cpu_tiny.yaml
      sweeper check search_spaces/cpu_tiny.yaml --acceptance-map cpu_tiny.map
      sweeper check --draft /checkpoints/step2000 --target meta-llama/Llama-3.1-8B-Instruct
    """
    with complaining():
        if file is None or draft or target:
            report: CheckReport | DraftReport = _one_draft(file, draft, target, algorithm)
            failed = isinstance(report, DraftReport) and bool(report.errors)
        else:
            report = _study(file, acceptance_map)
            failed = not report.launches
    if as_json:
        typer.echo(TypeAdapter(type(report)).dump_json(report, indent=2))
    elif isinstance(report, CheckReport):
        _print_check(report)
    else:
        show_drafts([report], console)
    if failed:
        complaints.print("[bold red]error:[/] preflight leaves nothing to launch", highlight=False)
        raise typer.Exit(2)


def _study(file: Path, acceptance_map: Path | None) -> CheckReport:
    config = load_study_file(file)
    report = check_study(config)
    if not acceptance_map:
        return report
    from sweeper.drafts.predictions import with_predictions

    return with_predictions(report, config, acceptance_map)


def _one_draft(file: Path | None, draft: str | None, target: str | None, algorithm: str) -> DraftReport:
    if file is not None:
        raise SweeperError("give a study file, or --draft and --target, not both")
    if not draft or not target:
        raise SweeperError("give a study file, or a draft and its target: --draft PATH --target PATH")
    if algorithm not in ALGORITHMS:
        raise SweeperError(f"--algorithm {algorithm}: known are {', '.join(ALGORITHMS)}")
    return check_pair(Pair(Path(draft).name, algorithm, draft), open_target(target), Serving())


def _interval(value: Interval | None) -> str:
    return f"{value:.2f}" if value else ""


def _print_check(report: CheckReport) -> None:
    console.print(
        f"[bold]{report.study}[/]: {report.asked} combinations asked for, [bold]{len(report.candidates)}[/] distinct "
        f"valid configs, {len(report.merges)} merged, {len(report.rejections)} rejected",
        highlight=False,
    )
    predicted = any(c.predicted_accept_length for c in report.candidates)
    table = Table("config", "requested as", "what SGLang changes", *(["accept length"] if predicted else []))
    for candidate in report.candidates:
        changed = candidate.requested != candidate.effective
        table.add_row(
            str(candidate.effective),
            candidate.requested.shape if changed else "",
            "\n".join(candidate.overrides),
            *([_interval(candidate.predicted_accept_length)] if predicted else []),
        )
    console.print(table)
    for title, rows in (
        (
            "Merged: not launched, since they run as another config",
            [(str(m.requested), f"runs as {m.effective.shape}", m.rule) for m in report.merges],
        ),
        (
            "Rejected: SGLang would refuse or crash",
            [(str(r.requested), "", r.rule) for r in report.rejections],
        ),
    ):
        if rows:
            table = Table("requested", "", "rule", title=title, title_justify="left")
            for row in rows:
                table.add_row(*row)
            console.print(table)
    show_drafts(report.preflight, console)
    pins = Table("flag", "value", "why", title="Pinned on the baseline and every trial", title_justify="left")
    for pin in report.pins:
        pins.add_row(f"--{pin.flag}", "" if pin.value is True else str(pin.value), pin.why)
    if report.resolved_at_start:
        pins.add_row(
            "attention backend, page size, memory share", "", "at the start, on the servers' own node"
        )
    console.print(pins)
    least, most = report.confirming, report.most_confirming
    several = f"{least} to {most}" if most > least else f"{least}"
    console.print(
        f"{report.launches} launches and the baseline, {report.prompts} to {report.most_prompts or '?'} requests each; "
        f"then {several} launches to confirm; SGLang {report.engine_version}",
        highlight=False,
    )
    for note in report.prompt_notes:
        console.print(f"Prompts: {escape(note)}", highlight=False)
    for warning in report.warnings:
        console.print(f"[yellow]{escape(warning)}[/]", highlight=False)
    console.print("Server command of the first one:", highlight=False)
    console.print(f"  {report.command}", highlight=False, markup=False, soft_wrap=True)
