"""The report in a terminal: baseline, ranking, break-even per load, and what to deploy."""

from __future__ import annotations

from collections import Counter

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reports.study_report import LoadRow, StudyReport
from reports.tables import acceptance, ranking, short


def print_report(report: StudyReport, console: Console) -> None:
    """Print everything a person needs to decide."""
    title = (
        f"{report.study}: {report.model} on {report.hardware or '?'}, SGLang {report.engine_version or '?'}"
    )
    console.rule(title, align="left")
    if not report.baseline:
        console.print("No baseline was measured yet, so there is nothing to compare with.")
        return
    objective = ", ".join(map(str, report.objective_loads))
    for title, table in (
        ("Baseline: no speculation", baseline_table(report)),
        (
            f"Ranking by speedup at concurrency {objective}: output tok/s over the baseline's",
            ranking_table(report),
        ),
        (
            "Accept length, and in brackets the one above which the config pays there",
            acceptance_table(report),
        ),
    ):
        console.print(f"\n[bold]{title}[/]", highlight=False)
        console.print(table)
    for line in [*break_even_lines(report), *failure_lines(report), *fairness_lines(report)]:
        console.print(line, highlight=False, soft_wrap=True)
    console.print()
    console.print(verdict(report), highlight=False, soft_wrap=True)


def baseline_table(report: StudyReport) -> Table:
    table = _table()
    for heading in ("concurrency", "output tok/s", "ms per token", "TTFT p50 ms"):
        table.add_column(heading, justify="right")
    for row in report.baseline:
        rate = f"{row.output_tok_s:.1f}"
        table.add_row(str(row.concurrency), rate, f"{row.step_time_ms:.2f}", f"{row.ttft_p50_ms:.0f}")
    return table


def ranking_table(report: StudyReport) -> Table:
    """Trials by speedup at the objective load; green pays, red does not, yellow may."""
    styles = [
        [_speedup_style(trial.at(base.concurrency)) for base in report.baseline] for trial in report.trials
    ]
    return _framed(ranking(report), styles)


def acceptance_table(report: StudyReport) -> Table:
    """Accept lengths beside those that a config must exceed to pay."""
    styles = [[_acceptance_style(row) for row in trial.loads] for trial in report.trials if trial.loads]
    return _framed(acceptance(report), styles)


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)


def _framed(frame: pd.DataFrame, styles: list[list[str]]) -> Table:
    """A data frame as a terminal table; ``styles`` [rows][loads] colour the ``c=`` columns."""
    table = _table()
    loads = [name for name in frame.columns if name.startswith("c=")]
    for name in frame.columns:
        table.add_column(name, justify="right" if name in ("#", *loads) else "left", no_wrap=True)
    for cells, colors in zip(frame.astype(str).to_dict("records"), styles, strict=True):
        color = dict(zip(loads, colors, strict=False)) | {"": _NOTE_STYLES.get(cells.get("", ""), "red")}
        table.add_row(*(Text(cells[name], style=color.get(name, "")) for name in frame.columns))
    return table


_NOTE_STYLES = {"deploy": "bold green", "": "", "RUNNING": "", "WAITING": ""}


def _speedup_style(row: LoadRow | None) -> str:
    if row is None:
        return ""
    return "green" if row.speedup.low > 1 else "red" if row.speedup.high < 1 else "yellow"


def _acceptance_style(row: LoadRow) -> str:
    return "green" if row.accept_length > row.break_even_accept_length else "red"


def break_even_lines(report: StudyReport) -> list[str]:
    """Per load: how many configs pay and the best one; then how far the best configs pay."""
    lines = ["", "[bold]Break-even per load[/] (intervals are 95 %)"]
    complete = [t for t in report.trials if t.state == "COMPLETE"]
    for base in report.baseline:
        rows = [(row, trial) for trial in complete if (row := trial.at(base.concurrency))]
        paying = [pair for pair in rows if pair[0].speedup.low > 1]
        best = max(rows, key=lambda pair: pair[0].speedup.value, default=None)
        line = f"  concurrency {base.concurrency}: {len(paying)} of {len(rows)} configs pay"
        if best:
            row, trial = best
            line += (
                f"; best {trial.config} {escape(short(row.speedup))}: accept length {row.accept_length:.2f}, "
                f"pays above {row.break_even_accept_length:.2f}"
            )
        lines.append(line)
    lines.append("\n[bold]Break-even concurrency per config[/]")
    lines.extend(f"  {trial.config}: {trial.break_even}" for trial in complete)
    return lines


def failure_lines(report: StudyReport) -> list[str]:
    """Every failed trial with what to do about it, and the configs that were left out on its account."""
    failed = [trial for trial in report.trials if trial.failure_class]
    lines = ["\n[bold]Failures[/]"] if failed or report.skipped else []
    for trial in failed:
        what = escape(trial.failure or "")
        lines.append(f"  trial {trial.number} [red]{trial.failure_class}[/] {trial.config}: {what}")
        lines.append(f"    next: {escape(trial.next_step or '')}")
    for why, count in Counter(report.skipped.values()).items():
        lines.append(f"  {count} config(s) skipped: {escape(why)}")
    return lines


def fairness_lines(report: StudyReport) -> list[str]:
    """What both arms share, and what they do not."""
    lines = ["\n[bold]Fairness[/]"]
    pinned = ", ".join(f"{p.flag}" + ("" if p.value is True else f" {p.value}") for p in report.pins)
    lines.append(f"  equal on both arms: {escape(pinned)}")
    lines += [f"  [yellow]not equal[/]: {escape(what)}" for what in report.confounders]
    return lines


def verdict(report: StudyReport) -> str:
    """One sentence: what to deploy."""
    best = report.best
    loads = ", ".join(map(str, report.objective_loads))
    if not any(t.state == "COMPLETE" for t in report.trials):
        return "[bold]No verdict[/]: no trial is complete."
    if best is None or best.objective is None:
        fast = [t for t in report.trials if t.objective and t.objective.low > 1]
        why = (
            f"all {len(fast)} faster configs give other outputs than the plain server"
            if fast
            else "no config is clearly faster than no speculation"
        )
        return f"[bold]Do not speculate[/] at concurrency {loads}: {why}."
    gain = escape(short(best.objective))
    return f"[bold green]Deploy {best.config}[/]: {gain} at concurrency {loads}; {best.break_even}."
