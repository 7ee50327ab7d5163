"""What ``sweeper bench-search`` found: tables for the terminal and Markdown, and the regret curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from sweeper.runs.whole_files import write_whole
from sweeper.search.contest import Duel, Score, Summary, regret_curve
from sweeper.search.landscape import Landscape

if TYPE_CHECKING:
    from matplotlib.axes import Axes

summaries_json: TypeAdapter[list[Summary]] = TypeAdapter(list[Summary])

CAPTION = "Launches until one was within 2 % of the best config: median / 90 % quantile over the seeds"


def _actors(rows: Sequence[Summary]) -> list[int]:
    return sorted({row.actors for row in rows})


def _methods(rows: Sequence[Summary]) -> list[str]:
    return list(dict.fromkeys(row.method for row in rows))


def _launches(row: Summary | None) -> str:
    if row is None:
        return ""
    missed = f" ({row.missed}/{row.seeds} never)" if row.missed else ""
    return f"{row.median:g} / {row.p90:g}{missed}"


def _lines(rows: Sequence[Summary], actors: int) -> list[tuple[str, str, dict[str, Summary]]]:
    """By landscape and load: the methods' rows."""
    found: dict[tuple[str, str], dict[str, Summary]] = {}
    for row in rows:
        if row.actors == actors:
            found.setdefault((row.landscape, row.load), {})[row.method] = row
    return [(landscape, load, by_method) for (landscape, load), by_method in found.items()]


def print_summary(rows: Sequence[Summary], landscapes: Sequence[Landscape], console: Console) -> None:
    origin = {landscape.name: landscape.origin for landscape in landscapes}
    methods = _methods(rows)
    one = min(_actors(rows), default=1)
    table = Table("landscape", "origin", "load", *methods, title=f"{CAPTION} ({one} server at a time)")
    for landscape, load, by_method in _lines(rows, one):
        table.add_row(
            landscape, origin[landscape], load, *(_launches(by_method.get(method)) for method in methods)
        )
    console.print(table)
    hours = Table("landscape", "load", "servers", *methods, title="Simulated hours until then (median)")
    for actors in _actors(rows):
        for landscape, load, by_method in _lines(rows, actors):
            hours.add_row(
                landscape, load, str(actors), *(_hours(by_method.get(method)) for method in methods)
            )
    console.print(hours)


def _hours(row: Summary | None) -> str:
    if row is None:
        return ""
    return "-" if row.hours is None else f"{row.hours:.2f}"


def markdown(rows: Sequence[Summary], landscapes: Sequence[Landscape]) -> str:
    """The same tables, for documents."""
    origin = {landscape.name: landscape.origin for landscape in landscapes}
    methods = _methods(rows)
    head = f"| landscape | origin | load | {' | '.join(methods)} |\n|{'---|' * (3 + len(methods))}\n"
    parts = [f"{CAPTION}.\n\n{head}"]
    for landscape, load, by_method in _lines(rows, min(_actors(rows), default=1)):
        cells = " | ".join(_launches(by_method.get(method)) for method in methods)
        parts.append(f"| {landscape} | {origin[landscape]} | {load} | {cells} |\n")
    parts.append("\nSimulated hours until then, median; `-`: most searches did not come near.\n\n")
    parts.append(f"| landscape | load | servers | {' | '.join(methods)} |\n|{'---|' * (3 + len(methods))}\n")
    for actors in _actors(rows):
        for landscape, load, by_method in _lines(rows, actors):
            cells = " | ".join(_hours(by_method.get(method)) for method in methods)
            parts.append(f"| {landscape} | {load} | {actors} | {cells} |\n")
    return "".join(parts)


def write_summary(
    rows: Sequence[Summary], scores: Mapping[Duel, Score], landscapes: Sequence[Landscape], folder: Path
) -> list[Path]:
    """``summary.md`` and, where matplotlib is installed, ``regret.svg``; returns what was written."""
    written = [folder / "summary.md"]
    write_whole(written[0], markdown(rows, landscapes).encode())
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return written
    written.append(folder / "regret.svg")
    draw_regret(rows, scores, written[1])
    return written


def draw_regret(rows: Sequence[Summary], scores: Mapping[Duel, Score], path: Path) -> None:
    """One panel per landscape and load: mean regret after every launch, by method."""
    from matplotlib.figure import Figure

    panels = _lines(rows, min(_actors(rows), default=1))
    columns = min(3, len(panels)) or 1
    height = -(-len(panels) // columns) or 1
    figure = Figure(figsize=(4.2 * columns, 2.8 * height), layout="constrained")
    for index, (landscape, load, by_method) in enumerate(panels):
        axes = figure.add_subplot(height, columns, index + 1)
        _draw_panel(axes, f"{landscape}, {load}", by_method, scores)
        if index == 0:
            axes.legend(fontsize=8, frameon=False)
    figure.savefig(path, metadata={"Date": None})


def _draw_panel(
    axes: Axes, title: str, by_method: Mapping[str, Summary], scores: Mapping[Duel, Score]
) -> None:
    for method, row in by_method.items():
        own = [
            score
            for duel, score in scores.items()
            if (duel.landscape, duel.load, duel.method, duel.actors)
            == (row.landscape, row.load, method, row.actors)
        ]
        launches = min(40, max(len(score.regret) for score in own))
        curve = [100 * regret for regret in regret_curve(own, launches)]
        axes.plot(range(1, launches + 1), curve, label=method, linewidth=2 if method == "structural" else 1)
    axes.axhline(2, color="grey", linewidth=0.6, linestyle="dotted")
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("launches", fontsize=8)
    axes.set_ylabel("mean regret, %", fontsize=8)
    axes.set_ylim(0, 60)
    axes.tick_params(labelsize=7)
