"""Draft checkpoints beside each other: what training promised, what was served, and whether it pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import plotly.graph_objects as go
from pydantic import Field
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from reports.figures.chart import label
from reports.rows import LoadRow, Row, TrialRow
from reports.study_report import StudyReport
from sweeper.config import Draft
from sweeper.drafts.probe_report import ProbeReport
from sweeper.drafts.run_cases import trained
from sweeper.records import Interval
from sweeper.speculation import SpeculationConfig


class Checkpoint(Row):
    """One draft at its best config, at the study's first objective load."""

    study: str
    draft: str
    step: int | None = Field(None, description="training step, where the study file gives it")
    expected_accept_length: float | None = Field(
        None, description="what the training's accuracies promise a chain of the best config's steps"
    )
    probe_accept_length: float | None = Field(None, description="outside SGLang, as `sweeper probe` found it")
    probe_depth: int | None = None
    config: SpeculationConfig | None = Field(None, description="its fastest config; null: none was measured")
    load: str = ""
    accept_length: Interval | None = Field(None, description="served, of that config at that load")
    break_even_accept_length: float | None = None
    speedup: Interval | None = Field(None, description="over the objective loads, confirmed where it was")
    pays: bool = Field(False, description="whether the whole interval of the speedup is above 1")


class Leaderboard(Row):
    """``rows`` are ranked by speedup. ``pays_from``: the training step from which speculation pays."""

    rows: list[Checkpoint]
    pays_from: float | None = Field(
        None,
        description="step at which the speedup crosses 1, between two checkpoints; null: it does nowhere",
    )


def checkpoints(
    report: StudyReport, drafts: Mapping[str, Draft], probes: Mapping[str, ProbeReport]
) -> list[Checkpoint]:
    """One row per draft of a study."""
    return [_checkpoint(report, name, draft, probes.get(name)) for name, draft in drafts.items()]


def _checkpoint(report: StudyReport, name: str, draft: Draft, probe: ProbeReport | None) -> Checkpoint:
    best = _best(report, name)
    promised = trained(draft.training)
    load = _objective_row(report, best)
    speedup = best.best_known if best else None
    return Checkpoint(
        study=report.study,
        draft=name,
        step=draft.training.step if draft.training else None,
        expected_accept_length=promised.expects(best.config.num_steps if best else 5) if promised else None,
        probe_accept_length=probe.served.accept_length.value if probe else None,
        probe_depth=probe.depth if probe else None,
        config=best.config if best else None,
        load=load.load if load else "",
        accept_length=load.accept_length if load else None,
        break_even_accept_length=load.break_even_accept_length if load else None,
        speedup=speedup,
        pays=bool(speedup and speedup.low > 1),
    )


def _best(report: StudyReport, draft: str) -> TrialRow | None:
    """The draft's fastest config that does not change the target's output; a confirmed one before all others."""
    able = [t for t in report.trials if t.config.draft == draft and t.best_known and not t.lossy]
    return max(able, key=lambda trial: trial.standing, default=None)


def _objective_row(report: StudyReport, trial: TrialRow | None) -> LoadRow | None:
    rows = [row for name in report.objective_loads if trial and (row := trial.at(name))]
    return rows[0] if rows else None


def leaderboard(rows: Sequence[Checkpoint]) -> Leaderboard:
    """Rank checkpoints, of one study or of several with the same target and traffic."""
    ranked = sorted(rows, key=lambda row: -(row.speedup.value if row.speedup else 0.0))
    curve = sorted((row.step, row.speedup.value) for row in rows if row.step is not None and row.speedup)
    return Leaderboard(rows=ranked, pays_from=crossing(curve))


def crossing(curve: Sequence[tuple[int, float]]) -> float | None:
    """The step at which a speedup last rises through 1, interpolated; the first step where all are above it.

    >>> crossing([(1000, 0.8), (2000, 1.2)])
    1500.0
    """
    if not curve or curve[-1][1] <= 1:
        return None
    for (before, low), (after, high) in reversed(list(pairwise(curve))):
        if low <= 1:
            return before + (after - before) * (1 - low) / (high - low)
    return float(curve[0][0])


def print_leaderboard(board: Leaderboard, console: Console) -> None:
    columns = (
        "draft",
        "step",
        "training promised",
        "probe",
        "served",
        "pays above",
        "best config",
        "speedup",
    )
    table = Table(*columns, title="Drafts by the speedup of their best config", title_justify="left")
    for row in board.rows:
        probe = f"{row.probe_accept_length:.2f} ({row.probe_depth} steps)" if row.probe_accept_length else ""
        table.add_row(
            escape(row.draft),
            "" if row.step is None else f"{row.step:,}",
            _number(row.expected_accept_length),
            probe,
            f"{row.accept_length:.2f}" if row.accept_length else "",
            _number(row.break_even_accept_length),
            row.config.shape if row.config else "not measured",
            f"{row.speedup:.2f}" if row.speedup else "",
            style="green" if row.pays else "",
        )
    console.print(table)
    loads = ", ".join(sorted({row.load for row in board.rows if row.load}))
    console.print(
        escape(
            f"Accept lengths: served at {loads or 'no load'}; promised for a chain of the config's steps."
        ),
        highlight=False,
    )
    if board.pays_from is not None:
        console.print(f"Speculation pays from training step {board.pays_from:,.0f} on.", highlight=False)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def leaderboard_page(board: Leaderboard) -> str:
    """A page with served accept length and speedup over the training step, as HTML that needs no network."""
    rows = sorted(
        (row for row in board.rows if row.step is not None and row.speedup), key=lambda row: row.step or 0
    )
    steps = [row.step for row in rows]
    names = [label(row.draft) for row in rows]
    made = go.Figure()
    promised = [row.expected_accept_length for row in rows]
    served = [row.accept_length.value if row.accept_length else None for row in rows]
    needed = [row.break_even_accept_length for row in rows]
    for title, values, dash in (
        ("served", served, "solid"),
        ("training promised", promised, "dot"),
        ("pays above", needed, "dash"),
    ):
        made.add_scatter(x=steps, y=values, name=title, text=names, mode="lines+markers", line={"dash": dash})
    speedups = [row.speedup.value if row.speedup else None for row in rows]
    made.add_scatter(x=steps, y=speedups, name="speedup", text=names, yaxis="y2", mode="lines+markers")
    made.update_layout(
        xaxis_title="training step",
        yaxis_title="accept length",
        yaxis2={"title": "speedup", "overlaying": "y", "side": "right"},
        template="plotly_white",
    )
    if board.pays_from is not None:
        made.add_vline(x=board.pays_from, line_dash="dot", annotation_text="starts to pay")
    page: str = made.to_html(include_plotlyjs=True, full_html=True)
    return page
