"""``sweeper leaderboard``: the checkpoints of a training beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from sweeper.cli.terminal import AsJson, complaining, console


def leaderboard(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="run directories, or studies under runs/")
    ],
    plot: Annotated[
        Path | None,
        typer.Option(help="write accept length and speedup over the training step as an HTML page"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rank the drafts of one or several runs: promised, probed and served accept length, best config, speedup.

    Drafts with `training: {step: ...}` in the study file are a curve, too: served accept length over the training step,
    and the step from which speculation pays. Runs must share target and traffic, or the ranking means nothing.

    Examples:
      sweeper leaderboard my_checkpoints
      sweeper leaderboard monday tuesday --plot leaderboard.html
    """
    from reports.leaderboard import checkpoints, leaderboard_page, print_leaderboard
    from reports.leaderboard import leaderboard as ranked
    from reports.study_report import build_report
    from sweeper.drafts.run_cases import probe_file, read_probes
    from sweeper.runs.directory import find_run, read_run
    from sweeper.runs.whole_files import write_whole

    rows, measured = [], set()
    with complaining():
        for name in runs:
            directory = find_run(name)
            config, study = read_run(directory)
            report = build_report(config, study)
            kept = probe_file(directory.path)
            probes = read_probes(kept) if kept.exists() else {}
            rows += checkpoints(report, config.space.drafts, probes)
            measured.add((report.model, report.hardware, report.workload))
        board = ranked(rows)
        if plot:
            write_whole(plot, leaderboard_page(board).encode())
    if as_json:
        typer.echo(board.model_dump_json(indent=2))
        return
    if len(measured) > 1:
        console.print(
            "[yellow]These runs differ in target, hardware or traffic: their speedups do not compare.[/]"
        )
    print_leaderboard(board, console)
    if plot:
        console.print(escape(f"Plot: {plot}"), highlight=False)
