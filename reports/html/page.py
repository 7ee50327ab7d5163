"""Fills the page: one file with its style, its script and plotly.js, to be opened from anywhere, also from a disk.

Its content security policy forbids every request, so nothing that a log or a study file holds can call out.
All text is escaped by the template; names that plotly shows are escaped where the figures are made.
"""

from __future__ import annotations

import json
from collections import Counter
from importlib.resources import files
from typing import Any

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from reports.figures.acceptance import accept_length_charts, position_charts
from reports.figures.chart import ChartGroup
from reports.figures.landscape import acceptance_maps, speed_maps
from reports.figures.progress import search_chart, timeline_chart
from reports.figures.speedup import speedup_charts
from reports.figures.step_time import step_time_charts
from reports.headline import headline, in_words
from reports.html.trial_lines import trial_lines
from reports.reproduce import reproduce
from reports.sections import (
    baseline,
    break_evens,
    checks,
    choices,
    conditions,
    costs,
    drafts,
    overrides,
    pins,
    shortfalls,
)
from reports.study_report import StudyReport
from reports.tables import ranking
from reports.validity import validity

MOST_ROWS = 60
"""Rows of a table beside that of all trials, in the report's order: the best ones; trials.csv has them all."""


def html_report(report: StudyReport) -> str:
    """The whole page."""
    groups = [
        speedup_charts(report),
        speed_maps(report),
        acceptance_maps(report),
        accept_length_charts(report),
        position_charts(report),
        step_time_charts(report),
        search_chart(report),
        timeline_chart(report),
    ]
    lines = trial_lines(report)
    page: str = _template().render(
        report=report,
        headline=headline(report),
        objective=in_words(report.objective_loads),
        counts=Counter(trial.state for trial in report.trials),
        conditions=conditions(report),
        tables={
            "ranking": ranking(report),
            "baseline": baseline(report),
            "choices": choices(report),
            "break_evens": break_evens(report),
            "shortfalls": shortfalls(report),
            "costs": costs(report),
            "overrides": overrides(report),
            "checks": checks(report),
            "pins": pins(report),
            "drafts": drafts(report),
        },
        groups={group.id: group for group in groups},
        figures=_figures(groups),
        lines=lines,
        states=sorted({line.state for line in lines}),
        classes=sorted({line.failure_class for line in lines if line.failure_class}),
        drafts=sorted({line.draft for line in lines}),
        validity=validity(report),
        commands=reproduce(report),
        most_rows=MOST_ROWS,
        plotly=get_plotlyjs(),
        style=_file("style.css"),
        script=_file("page.js"),
    )
    return page


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("reports", "html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["rows"] = _rows
    return environment.get_template("page.html.j2")


def _rows(frame: pd.DataFrame) -> list[list[str]]:
    return [[str(cell) for cell in row] for row in frame.head(MOST_ROWS).itertuples(index=False)]


def _figures(groups: list[ChartGroup]) -> str:
    """All figures as JSON that may stand inside a script element: no ``<``, so no end of it."""
    figures = {
        f"{group.id}-{number}": json.loads(chart.figure.to_json())
        for group in groups
        for number, chart in enumerate(group.charts)
    }
    return json.dumps(figures, separators=(",", ":")).replace("<", "\\u003c")


def _file(name: str) -> str:
    return (files("reports.html") / name).read_text("utf-8")
