"""Where the time of a verify round goes, beside the time that its accept length allows."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from reports.figures.chart import COLOURS, GREY, Chart, ChartGroup, figure, label
from reports.rows import LoadRow, TrialRow
from reports.study_report import StudyReport
from reports.tables import CONFIG
from sweeper.analysis.step_time import StepTimeSplit

CAPTION = (
    "Milliseconds per verify round. Target: a round of the plain server. Overhead: what speculating costs "
    "whatever the shape. The black-and-white diamond is the time that the config's accept length pays for: it "
    "pays if its bar ends before it. The parts come from a linear model of all configs at this load (below); what "
    "it does not explain is in the table."
)
MOST_BARS = 40
"""The best ones; the table has the others."""

PARTS = {
    "target": ("target_s", GREY),
    "overhead": ("overhead_s", COLOURS[3]),
    "drafting": ("drafting_s", COLOURS[4]),
    "verifying": ("verifying_s", COLOURS[0]),
    "drafting and verifying": ("together_s", COLOURS[2]),
}


def step_time_charts(report: StudyReport) -> ChartGroup:
    """One chart per load, a bar per config."""
    charts = []
    for load in dict.fromkeys(row.load for trial in report.trials for row in trial.loads):
        cells = [(t, row, row.split) for t in report.trials if (row := t.at(load)) and row.split]
        if cells:
            charts.append(Chart(load, _bars(cells[:MOST_BARS]), _table(cells)))
    return ChartGroup("step-time", CAPTION, charts)


Cells = Sequence[tuple[TrialRow, LoadRow, StepTimeSplit]]


def _bars(cells: Cells) -> go.Figure:
    names = [label(str(trial.config)) for trial, _, _ in cells]
    made = figure("ms per verify round", "", 150 + 30 * len(cells))
    for part, (field, colour) in PARTS.items():
        values = [getattr(split, field) for _, _, split in cells]
        if any(value is not None for value in values):
            made.add_trace(
                go.Bar(
                    x=[1000 * (value or 0) for value in values],
                    y=names,
                    name=part,
                    orientation="h",
                    marker={"color": colour},
                    hovertemplate="%{x:.2f} ms",
                )
            )
    made.add_trace(
        go.Scatter(
            x=[row.accept_length.value * 1000 * split.target_s for _, row, split in cells],
            y=names,
            name="paid for by its accept length",
            mode="markers",
            marker={
                "symbol": "diamond",
                "size": 12,
                "color": "white",
                "line": {"color": "black", "width": 2},
            },
            hovertemplate="accept length pays for %{x:.2f} ms",
        )
    )
    made.update_layout(barmode="stack", legend={"traceorder": "normal"})
    made.update_yaxes(type="category", autorange="reversed", showgrid=False)
    made.update_xaxes(rangemode="tozero")
    return made


def _table(cells: Cells) -> pd.DataFrame:
    def ms(seconds: float | None) -> str:
        return "-" if seconds is None else f"{1000 * seconds:.2f}"

    return pd.DataFrame(
        [
            {CONFIG: str(trial.config), "step time, ms": f"{row.step_time_ms:.2f}"}
            | {part: ms(getattr(split, field)) for part, (field, _) in PARTS.items()}
            | {
                "unexplained": ms(split.unexplained_s),
                "paid for": ms(row.accept_length.value * split.target_s),
            }
            for trial, row, split in cells
        ]
    )
