"""Heat maps over steps and topk, the best number of draft tokens in each cell, per draft and load."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
import plotly.graph_objects as go

from reports.figures.chart import Chart, ChartGroup, figure, label
from reports.rows import LoadRow, TrialRow
from reports.study_report import StudyReport
from sweeper.speculation import NO_DRAFT

Cell = tuple[TrialRow, LoadRow]

SPEED = (
    "Output tok/s by draft steps and topk; of several numbers of draft tokens the fastest, which stands in the "
    "cell. Blue is faster than no speculation, orange slower."
)
ACCEPTED = (
    "Accept length by draft steps and topk; of several numbers of draft tokens the one that accepts most."
)

# Orange to blue through grey: apart for every kind of colour blindness, and neither end is white or black.
DIVERGING = [[0.0, "#b35806"], [0.25, "#f1a340"], [0.5, "#d8d8d8"], [0.75, "#74add1"], [1.0, "#2166ac"]]


def speed_maps(report: StudyReport) -> ChartGroup:
    charts = _charts(report, lambda row: row.best_known.value, _speed_map)
    return ChartGroup("map-speed", SPEED, charts, by="draft and load")


def acceptance_maps(report: StudyReport) -> ChartGroup:
    charts = _charts(report, lambda row: row.accept_length.value, _acceptance_map)
    return ChartGroup("map-acceptance", ACCEPTED, charts, by="draft and load")


def draft_name(trial: TrialRow) -> str:
    config = trial.config
    return config.algorithm if config.draft == NO_DRAFT else f"{config.algorithm} {config.draft}"


def _charts(
    report: StudyReport,
    better: Callable[[LoadRow], float],
    draw: Callable[[Sequence[Cell]], go.Figure],
) -> list[Chart]:
    """One per draft and load at which more than one shape was measured."""
    found = []
    drafts = dict.fromkeys(draft_name(trial) for trial in report.trials if trial.loads)
    for name in drafts:
        trials = [trial for trial in report.trials if draft_name(trial) == name]
        for load in dict.fromkeys(row.load for trial in trials for row in trial.loads):
            cells: dict[tuple[int, int], Cell] = {}
            for trial in trials:
                row = trial.at(load)
                key = trial.config.num_steps, trial.config.topk
                if row and (key not in cells or better(row) > better(cells[key][1])):
                    cells[key] = trial, row
            if len(cells) > 1:
                ordered = [cells[key] for key in sorted(cells)]
                found.append(Chart(f"{name}, {load}", draw(ordered), _table(ordered)))
    return found


def _speed_map(cells: Sequence[Cell]) -> go.Figure:
    values = [row.best_known.value for _, row in cells]
    reach = max(0.1, *(abs(value - 1) for value in values))
    return _map(
        cells,
        values,
        [
            f"{row.output_tok_s.value:.0f} tok/s<br>{row.best_known.value:.2f}x<br>n={t.config.num_draft_tokens}"
            for t, row in cells
        ],
        {
            "colorscale": DIVERGING,
            "zmin": 1 - reach,
            "zmax": 1 + reach,
            "colorbar": {"title": {"text": "speedup"}, "thickness": 12},
        },
    )


def _acceptance_map(cells: Sequence[Cell]) -> go.Figure:
    return _map(
        cells,
        [row.accept_length.value for _, row in cells],
        [f"{row.accept_length.value:.2f}<br>n={t.config.num_draft_tokens}" for t, row in cells],
        {"colorscale": "Cividis", "colorbar": {"title": {"text": "tokens"}, "thickness": 12}},
    )


def _map(
    cells: Sequence[Cell], values: Sequence[float], texts: Sequence[str], colours: dict[str, object]
) -> go.Figure:
    """Steps and topk as categories: what was not measured in between has no column."""
    topks = sorted({trial.config.topk for trial, _ in cells})
    steps = sorted({trial.config.num_steps for trial, _ in cells})
    at = {(t.config.num_steps, t.config.topk): i for i, (t, _) in enumerate(cells)}
    made = figure("draft steps", "topk", 140 + 90 * len(topks))
    made.add_trace(
        go.Heatmap(
            x=[str(s) for s in steps],
            y=[str(k) for k in topks],
            z=[[values[at[s, k]] if (s, k) in at else None for s in steps] for k in topks],
            text=[[texts[at[s, k]] if (s, k) in at else "" for s in steps] for k in topks],
            customdata=[
                [label(str(cells[at[s, k]][0].config)) if (s, k) in at else "" for s in steps] for k in topks
            ],
            texttemplate="%{text}",
            hovertemplate="%{customdata}<br>%{text}<extra></extra>",
            hoverongaps=False,
            xgap=2,
            ygap=2,
            **colours,
        )
    )
    made.update_xaxes(type="category", showgrid=False)
    made.update_yaxes(type="category", showgrid=False)
    made.update_layout(meta={"min_width": 150 + 74 * len(steps)})
    return made


def _table(cells: Sequence[Cell]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "steps": trial.config.num_steps,
                "topk": trial.config.topk,
                "draft tokens": trial.config.num_draft_tokens,
                "output tok/s": f"{row.output_tok_s.value:.1f}",
                "speedup": f"{row.best_known.value:.2f}",
                "accept length": f"{row.accept_length.value:.2f}",
            }
            for trial, row in cells
        ]
    )
