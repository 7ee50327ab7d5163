"""The report as pandas tables: ranking and acceptance for people, one row per trial and load for machines."""

from __future__ import annotations

import pandas as pd

from reports.study_report import StudyReport, TrialRow
from sweeper.records import Interval

CONFIG = "steps/topk/draft tokens"


def ranking(report: StudyReport) -> pd.DataFrame:
    """One row per trial, best first: config, speedup [95 %] per load, and what to know of it."""
    return pd.DataFrame(
        [_ranking_row(report, rank, trial) for rank, trial in enumerate(report.trials, start=1)]
    )


def _ranking_row(report: StudyReport, rank: int, trial: TrialRow) -> dict[str, object]:
    row: dict[str, object] = {"#": rank, CONFIG: str(trial.config)}
    for base in report.baseline:
        load = trial.at(base.concurrency)
        row[f"c={base.concurrency}"] = short(load.speedup) if load else "-"
    return row | {"": note(report, trial)}


def acceptance(report: StudyReport) -> pd.DataFrame:
    """One row per measured trial: accept length, and in brackets the one it must exceed to pay, per load."""
    return pd.DataFrame(
        [
            {CONFIG: str(trial.config)}
            | {
                f"c={row.concurrency}": f"{row.accept_length:.2f} ({row.break_even_accept_length:.2f})"
                for row in trial.loads
            }
            for trial in report.trials
            if trial.loads
        ]
    ).fillna("-")


def short(speedup: Interval) -> str:
    """``1.24 [1.20-1.28]``"""
    return f"{speedup.value:.2f} [{speedup.low:.2f}-{speedup.high:.2f}]"


def note(report: StudyReport, trial: TrialRow) -> str:
    """Why a trial stands out: the winner, a failure's class, other outputs than the baseline's."""
    if trial.failure_class:
        return trial.failure_class
    if trial.number == report.winner:
        return "deploy"
    if trial.outputs_different:
        return "other outputs"
    return "" if trial.state == "COMPLETE" else trial.state


def long_table(report: StudyReport) -> pd.DataFrame:
    """One row per trial and load with every number; trials without a measured load have one row."""
    rows: list[dict[str, object]] = []
    for trial in report.trials:
        config = trial.config
        common: dict[str, object] = {
            "trial": trial.number,
            "state": trial.state,
            "algorithm": config.algorithm,
            "draft": config.draft,
            "num_steps": config.num_steps,
            "topk": config.topk,
            "num_draft_tokens": config.num_draft_tokens,
            "requested": str(trial.requested) if trial.requested else "",
            "outputs_equal": trial.outputs_equal,
            "failure_class": trial.failure_class or "",
            "failure": trial.failure or "",
            "start_s": trial.start_s,
            "measure_s": trial.measure_s,
        }
        for load in trial.loads:
            numbers = load.model_dump(exclude={"output_tok_s", "speedup"})
            for name, interval in (("output_tok_s", load.output_tok_s), ("speedup", load.speedup)):
                numbers |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
            rows.append(common | numbers)
        if not trial.loads:
            rows.append(common)
    return pd.DataFrame(rows)
