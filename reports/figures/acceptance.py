"""Accept length over draft steps, and acceptance position by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd
import plotly.graph_objects as go

from reports.figures.chart import MOST_LINES, MOST_NAMES, Chart, ChartGroup, errors, figure, label, style
from reports.figures.landscape import draft_name
from reports.rows import LoadRow, TrialRow
from reports.study_report import StudyReport
from reports.tables import CONFIG

Cell = tuple[TrialRow, LoadRow]

BY_STEPS = (
    "Solid: output tokens per verify round, bonus token included. Dashed, same colour: the accept length above "
    "which that config pays, step time over the baseline's. Speculation pays where the solid line is above the "
    "dashed one; where they part again, more steps cost more than they bring."
)
BY_POSITION = (
    "Conditional: of the verify rounds that accepted the position before, how many accept this one. Marginal: of "
    "all rounds, how many accept at least so many drafts. The deepest config of each draft is shown, and the "
    "winner."
)


def accept_length_charts(report: StudyReport) -> ChartGroup:
    """One chart per load: a line per draft and topk."""
    charts = []
    for load, cells in _by_load(report):
        made = figure("draft steps", "accept length")
        for number, (name, line) in enumerate(_lines(cells)[:MOST_NAMES]):
            _add_line(made, name, line, number)
        made.update_xaxes(tickvals=sorted({trial.config.num_steps for trial, _ in cells}))
        charts.append(Chart(load, made, _length_table(cells)))
    return ChartGroup("accept-length", BY_STEPS, charts)


def position_charts(report: StudyReport) -> ChartGroup:
    """Two charts per load: conditional and marginal acceptance."""
    charts = []
    for load, cells in _by_load(report):
        shown = _deepest(cells, report.winner)
        for kind in ("conditional", "marginal"):
            rates = [(trial, _rates(row, kind)) for trial, row in shown]
            made = figure("position", f"{kind} acceptance")
            for number, (trial, values) in enumerate(rates[:MOST_NAMES]):
                made.add_trace(
                    go.Scatter(
                        x=list(range(1, len(values) + 1)),
                        y=values,
                        name=label(str(trial.config)),
                        mode="lines+markers",
                        visible=True if number < MOST_LINES else "legendonly",
                        hovertemplate="position %{x}: %{y:.3f}",
                        **style(number),
                    )
                )
            made.update_yaxes(range=[0, 1.02])
            made.update_xaxes(dtick=1)
            charts.append(Chart(f"{kind}, {load}", made, _position_table(rates)))
    return ChartGroup("positions", BY_POSITION, charts, by="kind and load")


def _by_load(report: StudyReport) -> Iterator[tuple[str, list[Cell]]]:
    loads = dict.fromkeys(row.load for trial in report.trials for row in trial.loads)
    for load in loads:
        yield load, [(trial, row) for trial in report.trials if (row := trial.at(load))]


def _lines(cells: Sequence[Cell]) -> list[tuple[str, list[Cell]]]:
    """By draft and topk, over rising steps; of several numbers of draft tokens the one that accepts most."""
    found: dict[str, dict[int, Cell]] = {}
    for trial, row in cells:
        config = trial.config
        line = found.setdefault(f"{draft_name(trial)}, topk {config.topk}", {})
        before = line.get(config.num_steps)
        if before is None or row.accept_length.value > before[1].accept_length.value:
            line[config.num_steps] = trial, row
    return [(name, [line[steps] for steps in sorted(line)]) for name, line in found.items()]


def _add_line(made: go.Figure, name: str, cells: Sequence[Cell], number: int) -> None:
    steps = [trial.config.num_steps for trial, _ in cells]
    rows = [row for _, row in cells]
    look = style(number)
    made.add_trace(
        go.Scatter(
            x=steps,
            y=[row.accept_length.value for row in rows],
            error_y=errors([row.accept_length for row in rows]),
            name=label(name),
            legendgroup=label(name),
            mode="lines+markers",
            customdata=[[trial.config.num_draft_tokens] for trial, _ in cells],
            hovertemplate="%{y:.2f} at %{x} steps, %{customdata[0]} draft tokens",
            line={**look["line"], "dash": "solid"},
            marker=look["marker"],
        )
    )
    made.add_trace(
        go.Scatter(
            x=steps,
            y=[row.break_even_accept_length for row in rows],
            name=label(f"{name}: pays above"),
            legendgroup=label(name),
            showlegend=False,
            mode="lines+markers",
            line={**look["line"], "dash": "dash", "width": 1.5},
            marker={**look["marker"], "symbol": "line-ew-open", "size": 10},
            hovertemplate="pays above %{y:.2f}",
        )
    )


def _deepest(cells: Sequence[Cell], winner: int | None) -> list[Cell]:
    """The config with the most steps of every draft, which shows the most positions, and the winner."""
    deepest: dict[str, Cell] = {}
    for trial, row in cells:
        if row.histogram:
            name = draft_name(trial)
            before = deepest.get(name)
            if before is None or trial.config.num_steps > before[0].config.num_steps:
                deepest[name] = trial, row
    chosen = list(deepest.values())
    return chosen + [c for c in cells if c[0].number == winner and c[1].histogram and c not in chosen]


def _rates(row: LoadRow, kind: str) -> list[float]:
    return row.conditional_acceptance if kind == "conditional" else row.marginal_acceptance


def _length_table(cells: Sequence[Cell]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                CONFIG: str(trial.config),
                "accept length": f"{row.accept_length:.2f}",
                "pays above": f"{row.break_even_accept_length:.2f}",
                "margin": f"{100 * row.margin:+.0f} %",
            }
            for trial, row in cells
        ]
    )


def _position_table(rates: Sequence[tuple[TrialRow, Sequence[float]]]) -> pd.DataFrame:
    deepest = max((len(values) for _, values in rates), default=0)
    return pd.DataFrame(
        [
            {CONFIG: str(trial.config)}
            | {str(i + 1): f"{values[i]:.3f}" if i < len(values) else "-" for i in range(deepest)}
            for trial, values in rates
        ]
    )
