"""The report as pandas tables: the ranking for people, one row per trial and load for machines."""

from __future__ import annotations

import pandas as pd

from reports.study_report import StudyReport, TrialRow


def ranking(report: StudyReport) -> pd.DataFrame:
    """One row per trial, best first: config, speedup with interval and accept length per load, verdict."""
    return pd.DataFrame([_ranking_row(rank, trial) for rank, trial in enumerate(report.trials, start=1)])


def _ranking_row(rank: int, trial: TrialRow) -> dict[str, object]:
    row: dict[str, object] = {"rank": rank, "trial": trial.number, "config": str(trial.config)}
    for load in trial.loads:
        row[f"tok/s c={load.concurrency}"] = round(load.output_tok_s.value, 1)
        row[f"speedup c={load.concurrency}"] = f"{load.speedup:.2f}"
        row[f"A c={load.concurrency}"] = round(load.accept_length, 2)
    row["break-even"] = str(trial.break_even) if trial.break_even else ""
    row["state"] = trial.failure_class or trial.state
    return row


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
