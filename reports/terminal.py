"""The report in a terminal: baseline, ranking, break-even per load, and what to deploy."""

from __future__ import annotations

from collections import Counter

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from reports.headline import headline, in_words
from reports.preflight import finding_line
from reports.sections import baseline, costs
from reports.study_report import LoadRow, StudyReport
from reports.tables import acceptance, ranking, short
from sweeper.records import Load


def print_report(report: StudyReport, console: Console) -> None:
    """Print everything a person needs to decide."""
    title = (
        f"{report.study}: {report.model} on {report.hardware or '?'}, SGLang {report.engine_version or '?'}"
    )
    console.rule(escape(title), align="left")
    if not report.baseline:
        console.print("No baseline was measured yet, so there is nothing to compare with.")
        return
    for note in report.prompt_notes:
        console.print(f"Prompts: {escape(note)}", highlight=False, soft_wrap=True)
    objective = in_words(report.objective_loads)
    tables = [
        ("Baseline: no speculation", baseline_table(report)),
        (
            f"Ranking by speedup at {objective}: output tok/s over the baseline's",
            ranking_table(report),
        ),
        (
            "Accept length, and in brackets the one above which the config pays there",
            acceptance_table(report),
        ),
    ]
    if report.step_times:
        tables.append(
            ("What a verify round costs: round + step·s + token·n + branch·k·s", cost_table(report))
        )
    for title, table in tables:
        console.print(f"\n[bold]{title}[/]", highlight=False)
        console.print(table)
    sections = (
        break_even_lines,
        confirmation_lines,
        quality_lines,
        preflight_lines,
        failure_lines,
        fairness_lines,
    )
    for line in (line for section in sections for line in section(report)):
        console.print(line, highlight=False, soft_wrap=True)
    if report.search:
        console.print(f"\n[bold]Search[/]\n  {escape(str(report.search))}", highlight=False, soft_wrap=True)
    console.print()
    console.print(verdict(report), highlight=False, soft_wrap=True)


def baseline_table(report: StudyReport) -> Table:
    frame = baseline(report)
    return _framed(frame, [dict.fromkeys(frame.columns, "")] * len(frame))


def cost_table(report: StudyReport) -> Table:
    """Where the time of a verify round goes, per algorithm and load; docs/reports.md says how to read it."""
    frame = costs(report)
    return _framed(frame, [{}] * len(frame))


def ranking_table(report: StudyReport) -> Table:
    """Trials by speedup at the objective load; green pays, red does not, yellow may."""
    loads = [base.load for base in report.baseline]
    styles = [{load: _speedup_style(trial.at(load)) for load in loads} for trial in report.trials]
    return _framed(ranking(report), styles)


def acceptance_table(report: StudyReport) -> Table:
    """Accept lengths beside those that a config must exceed to pay."""
    styles = [{row.load: _acceptance_style(row) for row in t.loads} for t in report.trials if t.loads]
    return _framed(acceptance(report), styles)


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)


def _framed(frame: pd.DataFrame, styles: list[dict[str, str]]) -> Table:
    """A data frame as a terminal table; ``styles`` [rows] colour the loads' columns."""
    table = _table()
    loads = {load for style in styles for load in style} | {"#", "confirmed"}
    for name in frame.columns:
        table.add_column(name, justify="right" if name in loads else "left", no_wrap=True)
    for cells, style in zip(frame.astype(str).to_dict("records"), styles, strict=True):
        color = style | {"": _NOTE_STYLES.get(cells.get("", ""), "red")}
        table.add_row(*(Text(cells[name], style=color.get(name, "")) for name in frame.columns))
    return table


_NOTE_STYLES = {"deploy": "bold green", "": "", "RUNNING": "", "WAITING": "", "PRUNED": "yellow"}


def _speedup_style(row: LoadRow | None) -> str:
    if row is None:
        return ""
    return "green" if row.best_known.low > 1 else "red" if row.best_known.high < 1 else "yellow"


def _acceptance_style(row: LoadRow) -> str:
    return "green" if row.accept_length.value > row.break_even_accept_length else "red"


def break_even_lines(report: StudyReport) -> list[str]:
    """Per load: how many configs pay and the best one; then how far the best configs pay."""
    lines = ["", "[bold]Break-even per load[/] (intervals are 95 %)"]
    measured = [t for t in report.trials if t.state in ("COMPLETE", "PRUNED")]
    for base in report.baseline:
        rows = [(row, trial) for trial in measured if (row := trial.at(base.load))]
        paying = [pair for pair in rows if pair[0].best_known.low > 1]
        best = max(rows, key=lambda pair: (not pair[1].lossy, pair[0].standing), default=None)
        line = f"  {Load.parse(base.load).in_words()}: {len(paying)} of {len(rows)} configs pay"
        if best:
            row, trial = best
            line += (
                f"; best {escape(f'{trial.config} {short(row.best_known)}')}: "
                f"accept length {row.accept_length.value:.2f}, "
                f"pays above {row.break_even_accept_length:.2f}"
            )
        lines.append(line)
    curves = [(t, bucket, found) for t in measured for bucket, found in t.break_even.items()]
    if curves:
        lines.append("\n[bold]Break-even concurrency per config[/]")
    for trial, bucket, found in curves:
        lines.append(
            f"  {escape(str(trial.config))}{f' at {bucket} input tokens' if bucket else ''}: {found}"
        )
    if report.single_best:
        regrets = report.single_best.regrets
        worst = max(regrets, key=lambda load: regrets[load])
        lines.append(
            f"\n[bold]One config for all loads[/]: {escape(report.single_best.config)}, which gives up at most "
            f"{100 * regrets[worst]:.0f} % of the best speed (at {worst})"
        )
    pruned = [f"  {t.config}: {escape(t.pruned)}" for t in report.trials if t.pruned]
    return [*lines, *(["\n[bold]Pruned[/]", *pruned] if pruned else [])]


def confirmation_lines(report: StudyReport) -> list[str]:
    """The finalists' speedups of the search beside those measured again, and how the baseline held."""
    lines = []
    again = [trial for trial in report.trials if trial.confirmed or trial.confirmation_failure]
    if again:
        rounds = f"{report.confirmation_rounds} round(s), in turns with the baseline"
        lines.append(f"\n[bold]Confirmation[/] at {in_words(report.objective_loads)}: {rounds}")
    for trial in again:
        searched = escape(short(trial.objective)) if trial.objective else "-"
        found = escape(short(trial.confirmed)) if trial.confirmed else "failed"
        why = f" ({escape(trial.confirmation_failure)})" if trial.confirmation_failure else ""
        lines.append(f"  {escape(str(trial.config))}: in the search {searched}, confirmed {found}{why}")
    if report.checks:
        lines.append("\n[bold]Baseline re-checked[/]: its speed over that of the study's baseline")
    for check in report.checks:
        found = escape(short(check.drift)) if check.drift else f"[red]{escape(check.failure)}[/]"
        beyond = " [yellow]beyond baseline.tolerance[/]" if check.beyond_tolerance else ""
        lines.append(f"  {escape(check.when)}, {escape(check.server)}: {found}{beyond}")
    return lines


def quality_lines(report: StudyReport) -> list[str]:
    """Whose greedy outputs are not the plain server's, and how much that one differs from itself."""
    lines = []
    floor = report.noise_floor
    if floor:
        lines.append(
            f"\n[bold]Outputs[/] at temperature 0: the plain server repeats {floor.identical} of {floor.compared} "
            f"of its own; near ties are within {floor.near_tie:g} nats"
        )
    for trial in report.trials:
        lines += [f"  [red]LOSSY[/] {escape(str(trial.config))}: {escape(reason)}" for reason in trial.lossy]
        for row in trial.loads:
            lines += [f"  {escape(f'{trial.config} at {row.load}')}: {escape(note)}" for note in row.notes]
    for base in report.baseline:
        lines += [f"  no speculation at {base.load}: {escape(note)}" for note in base.notes]
    return lines


def preflight_lines(report: StudyReport) -> list[str]:
    """What the drafts' files told before anything was launched, as far as it explains numbers or their absence."""
    lines = [finding_line(draft, finding) for draft in report.preflight for finding in draft.findings]
    return ["\n[bold]Preflight[/]", *(f"  {line}" for line in lines)] if lines else []


def failure_lines(report: StudyReport) -> list[str]:
    """Every failed trial with what to do about it, and the configs that were left out on its account."""
    failed = [trial for trial in report.trials if trial.failure_class]
    lines = ["\n[bold]Failures[/]"] if failed or report.skipped else []
    for trial in failed:
        what = escape(trial.failure or "")
        lines.append(
            f"  trial {trial.number} [red]{trial.failure_class}[/] {escape(str(trial.config))}: {what}"
        )
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
    found = headline(report)
    colour = "bold green" if found.kind == "deploy" else "bold"
    warning = f" [red]{escape(found.warning)}[/]" if found.warning else ""
    return f"[{colour}]{escape(found.title)}[/]: {escape(found.text)}{warning}"
