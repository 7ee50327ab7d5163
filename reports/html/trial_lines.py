"""The lines of the page's table of all trials: what is shown, and what it is sorted by."""

from __future__ import annotations

from dataclasses import dataclass

from reports.rows import TrialRow
from reports.study_report import StudyReport
from reports.tables import note, short
from sweeper.speculation import NO_DRAFT

LOG_LINES = 40
"""Of a log's tail; the whole log lies in the run directory."""

LOG_BYTES = 1_000_000
"""Of all tails together: a study of a thousand failures is still a page that opens."""


@dataclass(frozen=True)
class TrialLine:
    """One trial. ``value`` is its best known speedup at the objective, 0 where there is none."""

    number: int
    config: str
    draft: str
    steps: int
    topk: int
    tokens: int
    state: str
    failure_class: str
    remark: str
    value: float
    speedup: str
    accept_length: float | None
    seconds: float | None
    log: str
    tail: str
    failure: str
    next_step: str


def trial_lines(report: StudyReport) -> list[TrialLine]:
    """In the report's order: the winner first."""
    left = LOG_BYTES
    lines = []
    for trial in report.trials:
        tail = "\n".join(trial.log_tail[-LOG_LINES:])
        if len(tail) > left:
            tail = ""
        left -= len(tail)
        lines.append(_line(report, trial, tail))
    return lines


def _line(report: StudyReport, trial: TrialRow, tail: str) -> TrialLine:
    config, reached = trial.config, trial.best_known
    row = next((row for name in report.objective_loads if (row := trial.at(name))), None)
    spent = None if trial.start_s is None else trial.start_s + (trial.measure_s or 0.0)
    remark = note(report, trial)
    return TrialLine(
        number=trial.number,
        config=str(config),
        draft=config.draft if config.draft != NO_DRAFT else "(no draft)",
        steps=config.num_steps,
        topk=config.topk,
        tokens=config.num_draft_tokens,
        state=trial.state,
        failure_class=trial.failure_class or "",
        remark="" if remark in (trial.state, trial.failure_class) else remark,
        value=reached.value if reached else 0.0,
        speedup=short(reached) + (" confirmed" if trial.confirmed else "") if reached else "-",
        accept_length=row.accept_length.value if row else None,
        seconds=spent,
        log=trial.log,
        tail=tail,
        failure=trial.failure or trial.pruned or "",
        next_step=trial.next_step or "",
    )
