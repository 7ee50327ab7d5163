"""``sweeper report``: what a run says."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from sweeper.cli.terminal import AllowLossy, AsJson, Run, complaining, console


def report(
    run: Run,
    recompute: Annotated[
        bool,
        typer.Option(
            "--recompute", help="compute load points and speedups again from the raw requests, and compare"
        ),
    ] = False,
    allow_lossy: AllowLossy = False,
    as_json: AsJson = False,
) -> None:
    """Print a run's ranking, speedups and break-even, and write them to files. Works while the sweep runs, too.

    RUN/report/report.html is one page with every chart and table, to be opened from the disk without a network;
    RUN/report/summary.md is for a pull request or an issue; RUN/trials.csv and trials.parquet hold one row per trial
    and load. docs/reports.md says how to read them.

    Examples:
      sweeper report cpu_tiny
      sweeper report cpu_tiny --recompute
    """
    from reports.files import write_report_files
    from reports.study_report import build_report
    from reports.terminal import print_report
    from sweeper.runs.directory import find_run, read_run
    from sweeper.runs.findings import recomputed_findings

    with complaining():
        directory = find_run(run)
        config, study = read_run(directory)
        again = None
        if recompute:
            again = recomputed_findings(study, directory, config.measurement.drift_tolerance)
        findings = again.findings if again else None
        found = build_report(config, study, findings, allow_lossy)
        write_report_files(found, directory)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        print_report(found, console)
        if again:
            console.print(
                f"\nComputed again from requests/: {again.numbers} numbers, which differ from the stored ones by "
                f"{again.largest_difference:.1e} at most",
                highlight=False,
            )
        console.print(
            escape(f"\nReport: {directory.report / 'report.html'}, summary.md; table: {directory.table}"),
            highlight=False,
            soft_wrap=True,
        )
