"""What all charts share: their parts, colours that colour-blind people can tell apart, and safe labels."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd
import plotly.graph_objects as go

from sweeper.printable import one_line
from sweeper.records import Interval

# Okabe and Ito, Color Universal Design (2008), without yellow and black, which vanish on white or on black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
DASHES = ("solid", "dash", "dot", "dashdot")
GREY = "#808080"

MOST_LINES = 8
"""Lines that a chart shows at first; the next ones are in its legend."""

MOST_NAMES = 24
"""Names in a legend, which is no list of all trials; the table below the chart is."""


@dataclass(frozen=True)
class Chart:
    """One figure and its numbers. ``name`` tells it from the others of its group."""

    name: str
    figure: go.Figure
    table: pd.DataFrame


@dataclass(frozen=True)
class ChartGroup:
    """Charts of which one is seen at a time, chosen by ``by``; ``caption`` says how to read them."""

    id: str
    caption: str
    charts: Sequence[Chart]
    by: str = "load"
    notes: Sequence[str] = field(default_factory=tuple)


def label(text: str) -> str:
    """A name as plotly shows it: it takes some HTML for markup, and names come from other people."""
    return html.escape(one_line(text), quote=False)


def errors(intervals: Sequence[Interval]) -> dict[str, object]:
    """Error bars of 95 % intervals."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [i.high - i.value for i in intervals],
        "arrayminus": [i.value - i.low for i in intervals],
        "thickness": 1.2,
        "width": 3,
    }


def style(number: int) -> dict[str, dict[str, object]]:
    """Colour, dash and symbol of the line of that number: no two of the first 24 alike."""
    colour = COLOURS[number % len(COLOURS)]
    return {
        "line": {"color": colour, "dash": DASHES[number // len(COLOURS) % len(DASHES)], "width": 2},
        "marker": {"color": colour, "symbol": SYMBOLS[number % len(SYMBOLS)], "size": 8},
    }


def figure(x: str, y: str, height: int = 420) -> go.Figure:
    """An empty figure; text and grid get the page's colours there, light or dark."""
    made = go.Figure()
    made.update_layout(
        template="none",
        height=height,
        margin={"l": 60, "r": 16, "t": 16, "b": 48},
        xaxis={"title": {"text": x}, "automargin": True},
        yaxis={"title": {"text": y}, "automargin": True},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0},
        hovermode="closest",
    )
    return made


def log_axis(values: Sequence[float]) -> dict[str, object]:
    """A logarithmic axis with ticks at the measured values only."""
    return {
        "type": "log",
        "tickvals": list(values),
        "ticktext": [f"{value:g}" for value in values],
        "minor": {"ticks": ""},
    }


def line_at_one(made: go.Figure, text: str) -> None:
    """The line between paying and not."""
    made.add_hline(
        y=1.0,
        line={"color": GREY, "width": 1.5, "dash": "dash"},
        annotation={"text": text, "font": {"color": GREY}},
        annotation_position="top left",
    )
