"""Speedup over load: where each config pays, with the line at 1.0 and the break-even concurrency on it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go

from reports.figures.chart import (
    MOST_LINES,
    MOST_NAMES,
    Chart,
    ChartGroup,
    errors,
    figure,
    label,
    line_at_one,
    log_axis,
    style,
)
from reports.rows import LoadRow, TrialRow
from reports.study_report import StudyReport
from reports.tables import CONFIG, short
from sweeper.records import Load

CAPTION = (
    "Output tok/s over the server's without speculation, at the same load and on the same prompts; bars are 95 % "
    "intervals. Above the line speculation pays. A cross on the line is a config's break-even concurrency, with "
    "its interval. The best configs are shown; click a name in the legend to show or hide one."
)


def speedup_charts(report: StudyReport) -> ChartGroup:
    """One chart per input-length bucket; open loops have charts of their own, over the request rate."""
    measured = [trial for trial in report.trials if trial.loads]
    kinds = dict.fromkeys((row.bucket, not row.concurrency) for trial in measured for row in trial.loads)
    return ChartGroup(
        "speedup", CAPTION, [_chart(measured, bucket, open_loop) for bucket, open_loop in kinds], by="traffic"
    )


def _chart(trials: Sequence[TrialRow], bucket: str, open_loop: bool) -> Chart:
    made = figure("requests per second" if open_loop else "concurrency", "speedup", 480)
    curves = [
        (trial, warm, rows)
        for trial in trials
        for warm in (False, True)
        if (rows := _curve(trial, bucket, open_loop, warm))
    ]
    for number, (trial, warm, rows) in enumerate(curves[:MOST_NAMES]):
        name = f"{trial.config}{' warm' if warm else ''}"
        made.add_trace(_line(name, rows, number))
        found = trial.break_even.get(bucket)
        if found and found.concurrency and not open_loop and not warm and number < MOST_LINES:
            made.add_trace(_crossing(name, found.concurrency, found.low, found.high, number))
    axis = sorted({_x(row) for _, _, rows in curves for row in rows})
    made.update_xaxes(**log_axis(axis))
    line_at_one(made, "no speculation")
    name = f"{bucket} input tokens" if bucket else "all prompts"
    return Chart(f"{name}, open loop" if open_loop else name, made, _table(curves))


def _curve(trial: TrialRow, bucket: str, open_loop: bool, warm: bool) -> list[LoadRow]:
    """A trial's rows of one kind of load, by rising load."""
    rows = [
        row
        for row in trial.loads
        if row.bucket == bucket and open_loop == (not row.concurrency) and warm == Load.parse(row.load).warm
    ]
    return sorted(rows, key=_x)


def _x(row: LoadRow) -> float:
    return row.concurrency or Load.parse(row.load).rate


def _line(name: str, rows: Sequence[LoadRow], number: int) -> go.Scatter:
    return go.Scatter(
        x=[_x(row) for row in rows],
        y=[row.best_known.value for row in rows],
        error_y=errors([row.best_known for row in rows]),
        name=label(name),
        legendgroup=label(name),
        mode="lines+markers",
        visible=True if number < MOST_LINES else "legendonly",
        customdata=[
            [row.output_tok_s.value, row.accept_length.value, row.break_even_accept_length] for row in rows
        ],
        hovertemplate="%{y:.2f}x at %{x}<br>%{customdata[0]:.1f} tok/s, accept length %{customdata[1]:.2f}, "
        "pays above %{customdata[2]:.2f}",
        **style(number),
    )


def _crossing(name: str, at: float, low: float | None, high: float | None, number: int) -> go.Scatter:
    ends = {"array": [high - at if high else 0], "arrayminus": [at - low if low else 0]}
    colour = style(number)["line"]["color"]
    return go.Scatter(
        x=[at],
        y=[1.0],
        error_x={"type": "data", "symmetric": False, "thickness": 2, **ends},
        name=label(f"{name} breaks even"),
        legendgroup=label(name),
        showlegend=False,
        mode="markers",
        marker={"color": colour, "symbol": "x-thin", "size": 12, "line": {"color": colour, "width": 3}},
        hovertemplate="breaks even at concurrency %{x:.1f}",
    )


def _table(curves: Sequence[tuple[TrialRow, bool, Sequence[LoadRow]]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {CONFIG: f"{trial.config}{' warm' if warm else ''}"}
            | {row.load: short(row.best_known) for row in rows}
            for trial, warm, rows in curves
        ]
    ).fillna("-")
