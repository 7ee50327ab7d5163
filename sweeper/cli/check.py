"""``sweeper check``: what a study file would launch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from sweeper.check import CheckReport, check_study
from sweeper.cli.terminal import AsJson, StudyFile, complaining, console
from sweeper.records import Interval
from sweeper.study_file import load_study_file


def check(
    file: StudyFile,
    acceptance_map: Annotated[
        Path | None, typer.Option(help="file of `sweeper map`: show each config's predicted accept length")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a study file would launch, without launching anything.

    Prints how many combinations were asked for, how many distinct valid configs remain, which requests run as
    the same effective config (for instance: topk 1 forces num_draft_tokens = num_steps + 1), which ones SGLang
    would refuse, the flags that both arms share and why, and the server command of the first trial. Flags in
    engine.extra_args are looked up in the installed SGLang. Exit code 2 if the file has an error.

    Examples:
      sweeper check search_spaces/cpu_tiny.yaml
      sweeper check search_spaces/cpu_tiny.yaml --acceptance-map cpu_tiny.map
    """
    with complaining():
        config = load_study_file(file)
        report = check_study(config)
        if acceptance_map:
            from sweeper.drafts.predictions import with_predictions

            report = with_predictions(report, config, acceptance_map)
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        _print_check(report)


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
    pins = Table("flag", "value", "why", title="Pinned on the baseline and every trial", title_justify="left")
    for pin in report.pins:
        pins.add_row(f"--{pin.flag}", "" if pin.value is True else str(pin.value), pin.why)
    if report.resolved_at_start:
        pins.add_row(
            "attention backend, page size, memory share", "", "at the start, on the servers' own node"
        )
    console.print(pins)
    console.print(
        f"{report.launches} launches and the baseline, {report.prompts} to {report.most_prompts or '?'} requests each; "
        f"then {report.confirming} launches to confirm; SGLang {report.engine_version}",
        highlight=False,
    )
    for note in report.prompt_notes:
        console.print(f"Prompts: {escape(note)}", highlight=False)
    for warning in report.warnings:
        console.print(f"[yellow]{escape(warning)}[/]", highlight=False)
    console.print("Server command of the first one:", highlight=False)
    console.print(f"  {report.command}", highlight=False, markup=False, soft_wrap=True)
