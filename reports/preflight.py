"""Preflight for people: a table of the drafts, and every finding in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sweeper.drafts.preflight import DraftReport, Finding, Level

COLOURS = {Level.ERROR: "red", Level.SILENT: "magenta", Level.WARNING: "yellow"}
MEANING = {
    Level.ERROR: "not launched: SGLang would refuse it or die",
    Level.SILENT: "launched, but it will accept little or nothing",
    Level.WARNING: "launched",
}


def finding_text(draft: DraftReport, finding: Finding) -> str:
    """``error aux-range EAGLE3 step2000, config.json: ...: what; do: what to do``"""
    return f"{finding.level.value} {finding.rule} {_sentence(draft, finding)}"


def finding_line(draft: DraftReport, finding: Finding) -> str:
    """``finding_text`` with markup."""
    colour = COLOURS[finding.level]
    return f"[{colour}]{finding.level.value} {finding.rule}[/] {escape(_sentence(draft, finding))}"


def _sentence(draft: DraftReport, finding: Finding) -> str:
    return f"{draft.algorithm} {draft.draft}, {finding.where}: {finding.what}; do: {finding.do}"


def drafts_table(reports: Sequence[DraftReport]) -> Table:
    """One line per draft and algorithm, and one per finding."""
    table = Table("draft", "is", "finding", "what", "what to do", title="Preflight", title_justify="left")
    for report in reports:
        name = escape(f"{report.algorithm} {report.draft}")
        kind = escape(report.format + (f"; reads {report.reads}" if report.reads else ""))
        if not report.findings:
            table.add_row(name, kind, "[green]nothing found[/]", "", "")
        for finding in report.findings:
            level = f"[{COLOURS[finding.level]}]{finding.level.value}[/]\n{finding.rule}"
            table.add_row(name, kind, level, escape(f"{finding.where}: {finding.what}"), escape(finding.do))
            name = kind = ""
        table.add_section()
    return table


def show_drafts(reports: Sequence[DraftReport], console: Console) -> None:
    """The table, and what its levels mean."""
    if not reports:
        return
    console.print(drafts_table(reports))
    seen = {finding.level for report in reports for finding in report.findings}
    for level in (level for level in Level if level in seen):
        console.print(f"  [{COLOURS[level]}]{level.value}[/]: {MEANING[level]}", highlight=False)


def show_findings(reports: Sequence[DraftReport], console: Console) -> None:
    """One line per finding; nothing where there are none."""
    for report in reports:
        for finding in report.findings:
            console.print(f"Preflight: {finding_line(report, finding)}", highlight=False, soft_wrap=True)
