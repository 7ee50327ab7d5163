"""The report as pandas tables: ranking and acceptance for people, one row per trial and load for machines."""

from __future__ import annotations

from dataclasses import fields

import pandas as pd

from reports.study_report import LoadRow, StudyReport, TrialRow
from sweeper.analysis.step_time import StepTimeSplit
from sweeper.records import Interval

CONFIG = "steps/topk/draft tokens"
INTERVALS = ("output_tok_s", "speedup", "confirmed", "accept_length", "drift")
FAR_OFF = 10.0


def ranking(report: StudyReport) -> pd.DataFrame:
    """One row per trial, best first: config, speedup [95 %] per load, and what to know of it."""
    loads = [*(b.load for b in report.baseline), *(r.load for t in report.trials for r in t.loads)]
    rows = [
        _ranking_row(report, rank, trial, list(dict.fromkeys(loads)))
        for rank, trial in enumerate(report.trials, start=1)
    ]
    frame = pd.DataFrame(rows)
    if not any(trial.confirmed for trial in report.trials):
        frame = frame.drop(columns="confirmed", errors="ignore")
    return frame


def _ranking_row(report: StudyReport, rank: int, trial: TrialRow, loads: list[str]) -> dict[str, object]:
    row: dict[str, object] = {"#": rank, CONFIG: str(trial.config)}
    for name in loads:
        load = trial.at(name)
        row[name] = short(load.speedup) + ("~" if load.unstable else "") if load else "-"
    return row | {"confirmed": short(trial.confirmed) if trial.confirmed else "", "": note(report, trial)}


def acceptance(report: StudyReport) -> pd.DataFrame:
    """One row per measured trial: accept length, and in brackets the one it must exceed to pay, per load."""
    return pd.DataFrame(
        [
            {CONFIG: str(trial.config)}
            | {
                row.load: f"{row.accept_length.value:.2f} ({row.break_even_accept_length:.2f})"
                for row in trial.loads
            }
            for trial in report.trials
            if trial.loads
        ]
    ).fillna("-")


def short(speedup: Interval) -> str:
    """``1.24 [1.20-1.28]``; an end that is more than ``FAR_OFF`` off says no more: ``1.10 [<0.11, >11]``."""
    value, low, high = speedup.value, f"{speedup.low:.2f}", f"{speedup.high:.2f}"
    below, above = speedup.low < value / FAR_OFF, speedup.high > value * FAR_OFF
    if not below and not above:
        return f"{value:.2f} [{low}-{high}]"
    return (
        f"{value:.2f} [{f'<{value / FAR_OFF:.2f}' if below else low}, "
        f"{f'>{value * FAR_OFF:.0f}' if above else high}]"
    )


def note(report: StudyReport, trial: TrialRow) -> str:
    """Why a trial stands out: the winner, a failure's class, outputs that may not be the target's."""
    if trial.failure_class:
        return trial.failure_class
    if trial.number == report.winner:
        return "deploy, LOSSY" if trial.lossy else "deploy"
    if trial.lossy:
        return "LOSSY"
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
            "lossy": "; ".join(trial.lossy),
            "pruned": trial.pruned or "",
            "failure_class": trial.failure_class or "",
            "failure": trial.failure or "",
            "start_s": trial.start_s,
            "measure_s": trial.measure_s,
        }
        rows += [common | _numbers(load) for load in trial.loads]
        if not trial.loads:
            rows.append(common)
    return pd.DataFrame(rows)


def _numbers(load: LoadRow) -> dict[str, object]:
    """A load's numbers, each in a cell of its own: intervals as three, parts of a verify round in ms."""
    nested = {
        *INTERVALS,
        "notes",
        "histogram",
        "marginal_acceptance",
        "conditional_acceptance",
        "shortfall",
        "split",
    }
    numbers: dict[str, object] = load.model_dump(exclude=nested, mode="json")
    numbers["notes"] = "; ".join(load.notes)
    numbers["histogram"] = " ".join(map(str, load.histogram))
    for name in INTERVALS:
        interval = getattr(load, name)
        for end, heading in (("value", name), ("low", f"{name}_low"), ("high", f"{name}_high")):
            numbers[heading] = getattr(interval, end) if interval else None
    for part in fields(StepTimeSplit):
        seconds = getattr(load.split, part.name) if load.split else None
        numbers[f"{part.name.removesuffix('_s')}_ms"] = None if seconds is None else 1000 * seconds
    numbers["needed_acceptance"] = load.shortfall.needed_acceptance if load.shortfall else None
    return numbers
