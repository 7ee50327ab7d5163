"""Checkpoints ranked by what their best config gains, and the step from which they pay."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from reports.leaderboard import checkpoints, crossing, leaderboard, leaderboard_page, print_leaderboard
from sweeper.config import Draft
from sweeper.records import Interval
from tests.reports.test_study_report import report, row

WEAK, MIDDLE, GOOD = Interval(0.8, 0.7, 0.9), Interval(1.05, 0.95, 1.15), Interval(1.6, 1.5, 1.7)


def draft(step: int, *accuracies: float) -> Draft:
    return Draft.model_validate(
        {"path": f"/c/{step}", "training": {"conditional_accuracy": list(accuracies), "step": step}}
    )


def trials_of(**speedups: Interval) -> list:  # type: ignore[type-arg]
    made = [row(number, speedup) for number, speedup in enumerate(speedups.values())]
    return [
        each.model_copy(update={"config": each.config.__class__("EAGLE3", name, 3, 1, 4)})
        for name, each in zip(speedups, made, strict=True)
    ]


DRAFTS = {
    "s1": draft(1000, 0.4, 0.3),
    "s2": draft(2000, 0.6, 0.5),
    "s3": draft(4000, 0.7, 0.65),
    "s4": Draft(path="/x"),
}


def test_drafts_are_ranked_and_those_that_were_not_measured_come_last() -> None:
    found = report(*trials_of(s1=WEAK, s2=MIDDLE, s3=GOOD))
    board = leaderboard(checkpoints(found, DRAFTS, {}))
    assert [each.draft for each in board.rows] == ["s3", "s2", "s1", "s4"]
    assert [each.pays for each in board.rows] == [True, False, False, False]
    assert board.rows[0].expected_accept_length == pytest.approx(1 + 0.7 + 0.7 * 0.65 + 0.7 * 0.65**2)
    assert board.rows[3].config is None
    assert board.pays_from == pytest.approx(1800)  # 0.8 at 1000, 1.05 at 2000
    shown = io.StringIO()
    print_leaderboard(board, Console(file=shown, width=160))
    assert "pays from training step 1,800" in shown.getvalue()
    page = leaderboard_page(board)
    assert "starts to pay" in page
    assert "<script src" not in page  # plotly.js lies in the page


@pytest.mark.parametrize(
    ("curve", "step"),
    [
        ([], None),
        ([(1, 0.5), (2, 0.9)], None),
        ([(1, 1.2), (2, 1.5)], 1.0),
        ([(1, 1.2), (2, 0.8), (4, 1.2)], 3.0),
    ],
)
def test_the_crossing_is_the_last_one(curve: list[tuple[int, float]], step: float | None) -> None:
    assert crossing(curve) == (None if step is None else pytest.approx(step))
