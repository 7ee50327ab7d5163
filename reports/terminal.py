"""The report in a terminal: baseline, ranking, break-even per load, and what to deploy."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from reports.study_report import LoadRow, StudyReport, TrialRow
from sweeper.records import Interval


def print_report(report: StudyReport, console: Console) -> None:
    """Print everything a person needs to decide."""
    title = (
        f"{report.study}: {report.model} on {report.hardware or '?'}, SGLang {report.engine_version or '?'}"
    )
    console.rule(title, align="left")
    if not report.baseline:
        console.print("No baseline was measured yet, so there is nothing to compare with.")
        return
    console.print(baseline_table(report))
    console.print(ranking_table(report))
    console.print(acceptance_table(report))
    for line in break_even_lines(report):
        console.print(line, highlight=False)
    console.print()
    console.print(verdict(report), highlight=False, soft_wrap=True)


def baseline_table(report: StudyReport) -> Table:
    table = _table("Baseline: no speculation")
    for heading in ("concurrency", "output tok/s [95 %]", "ms per token", "TTFT p50 ms"):
        table.add_column(heading, justify="right")
    for row in report.baseline:
        rate = f"{row.output_tok_s:.1f}"
        table.add_row(str(row.concurrency), rate, f"{row.step_time_ms:.2f}", f"{row.ttft_p50_ms:.0f}")
    return table


def ranking_table(report: StudyReport) -> Table:
    """Trials by speedup at the objective load."""
    loads = [row.concurrency for row in report.baseline]
    objective = ", ".join(map(str, report.objective_loads))
    table = _table(f"Ranking by speedup at concurrency {objective}: output tok/s over the baseline's [95 %]")
    table.add_column("#", justify="right")
    table.add_column("steps/topk/draft tokens", no_wrap=True)
    for load in loads:
        table.add_column(f"c={load}", justify="right", no_wrap=True)
    table.add_column("")
    for rank, trial in enumerate(report.trials, start=1):
        cells = [_speedup_cell(trial.at(load)) for load in loads]
        table.add_row(str(rank), str(trial.config), *cells, _note(report, trial))
    return table


def acceptance_table(report: StudyReport) -> Table:
    """Accept lengths beside those that a config must exceed to pay."""
    loads = [row.concurrency for row in report.baseline]
    table = _table("Accept length, and in brackets the one above which the config pays at that load")
    table.add_column("steps/topk/draft tokens", no_wrap=True)
    for load in loads:
        table.add_column(f"c={load}", justify="right", no_wrap=True)
    for trial in report.trials:
        if trial.loads:
            table.add_row(str(trial.config), *(_acceptance_cell(trial.at(load)) for load in loads))
    return table


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)


def _speedup_cell(row: LoadRow | None) -> str:
    if row is None:
        return "-"
    color = "green" if row.speedup.low > 1 else "red" if row.speedup.high < 1 else "yellow"
    return f"[{color}]{_short(row.speedup)}[/]"


def _acceptance_cell(row: LoadRow | None) -> str:
    if row is None:
        return "-"
    color = "green" if row.accept_length > row.break_even_accept_length else "red"
    return f"[{color}]{row.accept_length:.2f}[/] ({row.break_even_accept_length:.2f})"


def _short(speedup: Interval) -> str:
    return f"{speedup.value:.2f} \\[{speedup.low:.2f}-{speedup.high:.2f}]"


def _note(report: StudyReport, trial: TrialRow) -> str:
    if trial.failure_class:
        return f"[red]{trial.failure_class}[/]"
    if trial.number == report.winner:
        return "[bold green]deploy[/]"
    if trial.outputs_equal is False:
        return "[red]other outputs[/]"
    return "" if trial.state == "COMPLETE" else trial.state


def break_even_lines(report: StudyReport) -> list[str]:
    """Per load: how many configs pay and the best one; then how far the best configs pay."""
    lines = ["", "[bold]Break-even per load[/]"]
    complete = [t for t in report.trials if t.state == "COMPLETE"]
    for base in report.baseline:
        rows = [(row, trial) for trial in complete if (row := trial.at(base.concurrency))]
        paying = [pair for pair in rows if pair[0].speedup.low > 1]
        best = max(rows, key=lambda pair: pair[0].speedup.value, default=None)
        line = f"  concurrency {base.concurrency}: {len(paying)} of {len(rows)} configs pay"
        if best:
            row, trial = best
            line += (
                f"; best {trial.config} {_short(row.speedup)}: accept length {row.accept_length:.2f}, "
                f"pays above {row.break_even_accept_length:.2f}"
            )
        lines.append(line)
    lines.append("[bold]Break-even concurrency per config[/]")
    lines.extend(f"  {trial.config}: {trial.break_even}" for trial in complete)
    return lines


def verdict(report: StudyReport) -> str:
    """One sentence: what to deploy."""
    best = report.best
    loads = ", ".join(map(str, report.objective_loads))
    if not any(t.state == "COMPLETE" for t in report.trials):
        return "[bold]No verdict[/]: no trial is complete."
    if best is None or best.objective is None:
        return f"[bold]Do not speculate[/] at concurrency {loads}: no config is clearly faster than no speculation."
    return f"[bold green]Deploy {best.config}[/]: {_short(best.objective)} at concurrency {loads}; {best.break_even}."
