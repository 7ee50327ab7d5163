"""The search launch by launch, and when every launch ran where."""

from __future__ import annotations

from datetime import datetime, timedelta

import pandas as pd
import plotly.graph_objects as go

from reports.figures.chart import COLOURS, GREY, Chart, ChartGroup, errors, figure, label, line_at_one
from reports.headline import in_words
from reports.rows import SpanRow
from reports.study_report import StudyReport
from reports.tables import CONFIG, short

FOUND = (
    "Speedup at the objective load(s) of every trial, in the order of their launches, and the best so far."
)
WHEN = (
    "Every launch on its server: the light part is starting, the solid one warming up and measuring. Times are "
    "those of the servers' clocks, UTC; checks of the baseline are not kept with their times."
)
STATES = {"COMPLETE": COLOURS[0], "PRUNED": COLOURS[4], "FAILED": COLOURS[1], "INTERRUPTED": COLOURS[3]}


def search_chart(report: StudyReport) -> ChartGroup:
    """Trials by number; failed ones stand on the axis."""
    trials = sorted((t for t in report.trials if t.state in STATES), key=lambda t: t.number)
    made = figure("trial", f"speedup at {label(in_words(report.objective_loads))}")
    for state, symbol in (("COMPLETE", "circle"), ("PRUNED", "triangle-down"), ("FAILED", "x")):
        some = [t for t in trials if t.state == state]
        reached = [t.objective for t in some if t.objective]
        values = [t.objective.value if t.objective else 0.0 for t in some]
        made.add_trace(
            go.Scatter(
                x=[t.number for t in some],
                y=values,
                error_y=errors(reached) if len(reached) == len(some) else None,
                mode="markers",
                name=state.lower(),
                text=[label(f"{t.config} {t.failure_class or ''}") for t in some],
                hovertemplate="trial %{x}: %{y:.2f}x<br>%{text}",
                marker={"color": STATES[state], "symbol": symbol, "size": 9},
            )
        )
    best, steps = 0.0, []
    for trial in trials:
        best = max(best, trial.objective.value if trial.objective and trial.state == "COMPLETE" else 0.0)
        steps.append(best or None)
    made.add_trace(
        go.Scatter(
            x=[t.number for t in trials],
            y=steps,
            mode="lines",
            name="best so far",
            line={"color": COLOURS[2], "width": 2, "shape": "hv"},
            hovertemplate="best so far %{y:.2f}x",
        )
    )
    made.update_xaxes(tickformat="d", **({"dtick": 1} if len(trials) <= 20 else {}))
    line_at_one(made, "no speculation")
    table = pd.DataFrame(
        [
            {"trial": t.number, CONFIG: str(t.config), "state": t.failure_class or t.state}
            | {"speedup": short(t.objective) if t.objective else "-"}
            for t in trials
        ]
    )
    return ChartGroup("progress", FOUND, [Chart("search", made, table)] if trials else [])


def timeline_chart(report: StudyReport) -> ChartGroup:
    """A row per server, two bars per launch."""
    spans = [(span, start) for span in report.timeline if (start := _time(span.started_at))]
    servers = list(dict.fromkeys(span.server for span, _ in spans))
    made = figure("", "", 150 + 44 * max(1, len(servers)))
    for starting in (True, False):
        made.add_trace(
            go.Bar(
                base=[
                    (start if starting else start + timedelta(seconds=span.start_s)).isoformat()
                    for span, start in spans
                ],
                x=[1000 * (span.start_s if starting else span.measure_s) for span, _ in spans],
                y=[label(span.server) for span, _ in spans],
                orientation="h",
                name="starting" if starting else "measuring",
                opacity=0.45 if starting else 1.0,
                marker={"color": [_colour(span) for span, _ in spans]},
                text=[
                    label(f"{s.label}: {s.start_s:.0f} s + {s.measure_s:.0f} s, {s.state.lower()}")
                    for s, _ in spans
                ],
                textposition="none",
                hovertemplate="%{text}<extra></extra>",
            )
        )
    made.update_layout(barmode="overlay", showlegend=False)
    made.update_xaxes(type="date")
    made.update_yaxes(type="category", autorange="reversed", showgrid=False)
    table = pd.DataFrame(
        [
            {
                "launch": span.label,
                "server": span.server,
                "started": span.started_at,
                "start, s": f"{span.start_s:.0f}",
                "measure, s": f"{span.measure_s:.0f}",
                "state": span.state,
            }
            for span, _ in spans
        ]
    )
    return ChartGroup("timeline", WHEN, [Chart("timeline", made, table)] if spans else [])


def _time(written: str) -> datetime | None:
    try:
        return datetime.fromisoformat(written)
    except ValueError:  # by hand, or from a release that wrote it otherwise
        return None


def _colour(span: SpanRow) -> str:
    return GREY if span.kind == "baseline" else STATES.get(span.state, GREY)
