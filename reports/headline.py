"""What a study says in one sentence, for every output: what to deploy, or what would have to be better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reports.rows import LoadRow, TrialRow
from reports.study_report import StudyReport
from reports.tables import short
from sweeper.records import Load


@dataclass(frozen=True)
class Headline:
    """``title`` is the verdict in three words, ``text`` the reasons; both plain text."""

    kind: Literal["deploy", "plain", "unknown"]
    title: str
    text: str
    warning: str = ""


def headline(report: StudyReport) -> Headline:
    """The verdict of a study at its objective loads."""
    loads = in_words(report.objective_loads)
    best = report.best
    if not report.baseline:
        return Headline(
            "unknown", "No verdict", "no baseline was measured yet, so there is nothing to compare with."
        )
    if not report.finished:
        return Headline("unknown", "No verdict", "no trial is complete.")
    if best is None or best.best_known is None:
        fast = [t for t in report.trials if t.lossy and t.best_known and t.best_known.low > 1]
        but = f", but for {len(fast)} that may change its outputs" if fast else ""
        text = f"no config is clearly faster than no speculation at {loads}{but}. {needed(report)}".strip()
        return Headline("plain", "Do not speculate", text)
    how = "confirmed" if best.confirmed else "not confirmed by a second measurement"
    pays = "; ".join(
        f"{found}{f' at {bucket} input tokens' if bucket else ''}"
        for bucket, found in best.break_even.items()
    )
    return Headline(
        "deploy",
        f"Deploy {best.config}",
        f"{short(best.best_known)} at {loads}, {how}{f'; {pays}' if pays else ''}.",
        "LOSSY: it may change the outputs." if best.lossy else "",
    )


def closest(report: StudyReport) -> tuple[TrialRow, LoadRow] | None:
    """The trial and objective load that come nearest to paying, by accept length over the one needed; None
    where nothing was measured.
    """
    rows = [
        (trial, row)
        for trial in report.trials
        for name in report.objective_loads
        if (row := trial.at(name)) and not trial.lossy
    ]
    return max(rows, key=lambda pair: pair[1].margin, default=None)


def needed(report: StudyReport) -> str:
    """What the nearest config lacks, as a sentence; empty where nothing was measured."""
    found = closest(report)
    if found is None:
        return ""
    trial, row = found
    return f"The nearest is {trial.config} at {row.load}: {lacks(trial, row)}."


def lacks(trial: TrialRow, row: LoadRow) -> str:
    """``accept length 1.51, pays above 2.03; needs ...``: what would make a config pay at a load."""
    have = f"accept length {row.accept_length.value:.2f}, pays above {row.break_even_accept_length:.2f}"
    lack = row.shortfall
    if lack is None:
        return f"{have}, which is not enough to be sure"
    ways = []
    if lack.needed_acceptance is not None:
        now = f" (now {row.conditional_acceptance[0]:.2f} at the first)" if row.conditional_acceptance else ""
        ways.append(f"a conditional acceptance of {lack.needed_acceptance:.2f} at every position{now}")
    elif trial.config.topk == 1:
        ways.append("more than a draft that is always right, at this length")
    ways.append(f"a verify round of {1000 * lack.needed_step_time_s:.1f} ms (now {row.step_time_ms:.1f})")
    if lack.draft_cost_share is not None:
        ways.append(f"a draft at {100 * lack.draft_cost_share:.0f} % of its cost")
    return f"{have}; it would take {', or '.join(ways)}"


def in_words(loads: list[str]) -> str:
    """``concurrency 1; concurrency 16, 512-1023 input tokens``"""
    return "; ".join(Load.parse(name).in_words() for name in loads)
