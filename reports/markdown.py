"""The report as Markdown, for a pull request or an issue: verdict, conditions, and the tables that carry them."""

from __future__ import annotations

import re

import pandas as pd

from reports.headline import headline, in_words
from reports.reproduce import reproduce
from reports.sections import baseline, break_evens, choices, conditions, costs, overrides, shortfalls
from reports.study_report import StudyReport
from reports.tables import ranking
from reports.validity import validity
from sweeper.printable import one_line


def markdown_report(report: StudyReport) -> str:
    """The whole summary."""
    found = headline(report)
    parts = [
        f"# {_text(report.study)}: {_text(found.title)}",
        f"{_text(found.text)} {f'**{found.warning}**' if found.warning else ''}".strip(),
        "\n".join(f"- {name}: {_text(value)}" for name, value in conditions(report)),
    ]
    tables = (
        ("Best per load", choices(report)),
        ("No speculation", baseline(report)),
        (f"Ranking by speedup at {in_words(report.objective_loads)}", ranking(report)),
        ("Break-even", break_evens(report)),
        ("What would make the others pay", shortfalls(report)),
        ("What a verify round costs", costs(report)),
        ("Requested and effective", overrides(report)),
    )
    for title, frame in tables:
        if not frame.empty:
            parts += [f"## {_text(title)}", markdown_table(frame)]
    if report.single_best:
        worst = 100 * max(report.single_best.regrets.values())
        parts.append(
            f"One config for all loads: {_text(report.single_best.config)}, which gives up at most {worst:.0f} % of "
            "the best speed at any of them."
        )
    if report.search:
        parts.append(f"Search: {_text(str(report.search))}.")
    parts += _validity(report)
    parts.append("## Reproduce")
    parts += [f"{what}:\n\n{_fenced(command)}" for what, command in reproduce(report)]
    parts.append(f"Intervals are 95 %. Written by sweeper, {report.created_at}.")
    return "\n\n".join(parts) + "\n"


MOST_ROWS = 20


def markdown_table(frame: pd.DataFrame) -> str:
    """A data frame as a Markdown table, of its first MOST_ROWS rows."""
    heading = [_text(str(name)) for name in frame.columns]
    rows = [heading, ["---"] * len(heading)]
    rows += [[_text(str(cell)) for cell in row] for row in frame.head(MOST_ROWS).itertuples(index=False)]
    more = (
        f"\n\nThe first {MOST_ROWS} of {len(frame)}; trials.csv holds all." if len(frame) > MOST_ROWS else ""
    )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + more


def _validity(report: StudyReport) -> list[str]:
    found = validity(report)
    sections = (
        ("Not equal on both arms", found.unequal),
        ("Outputs", found.outputs),
        ("Unstable while measured", found.unstable),
        ("Preflight", found.preflight),
        ("Failures by class", found.failures),
        ("Skipped", found.skipped),
        ("Hot swaps", found.swaps),
    )
    lines = [f"- {title}: {_text(line)}" for title, some in sections for line in some]
    return ["## Validity", "\n".join(lines)] if lines else []


def _text(text: str) -> str:
    """As it is read: nothing in it is a link, an image, markup or the end of a table's cell."""
    return re.sub(r"([\\`*_\[\]<>|#!~])", r"\\\1", one_line(text))


def _fenced(command: str) -> str:
    """A code block that no backticks in it can end."""
    longest = max((len(run) for run in re.findall("`+", command)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}sh\n{one_line(command)}\n{fence}"
