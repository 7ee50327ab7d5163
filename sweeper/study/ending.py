"""Puts the end of a trial into the study: its attributes, its value, and whether its config is to be tried again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import optuna
from optuna.trial import TrialState

from sweeper import records
from sweeper.records import Load, TrialRecord
from sweeper.search.candidates import REQUEUE
from sweeper.server.failures import ADVICE, Remedy
from sweeper.storage.stored_trial import Speedups, attributes, objective
from sweeper.study.trial_notes import report_steps, trial_note, write_note

MAX_ATTEMPTS = 2
"""Launches of one config whose node or actor was lost, before it counts as failed."""


def end_trial(
    study: optuna.Study, trial: optuna.Trial, record: TrialRecord, speedups: Speedups, loads: Sequence[Load]
) -> None:
    """``loads`` are the objective's. Doing it again after a part of it was done comes to the same."""
    for name, value in attributes(record, speedups):
        trial.set_user_attr(name, value)
    note = trial_note(trial.number, record)
    if note:
        write_note(study, note, trial)
    if record.state is records.TrialState.COMPLETE:
        for load, step in report_steps([point.load for point in record.load_points]).items():
            trial.report(speedups[load].value, step)
        study.tell(trial, objective(speedups, loads))
    elif record.state is records.TrialState.PRUNED:  # Optuna takes a pruned trial's last report for its value
        trial.report(objective(speedups, loads), step=0)
        study.tell(trial, state=TrialState.PRUNED)
    else:
        _fail(study, trial, record)


def _fail(study: optuna.Study, trial: optuna.Trial, record: TrialRecord) -> None:
    """Tell a failure; a config that is not to blame goes back into the queue."""
    attempt = int(trial.user_attrs.get("attempt", 1))
    lost = record.failure is not None and ADVICE[record.failure.kind].remedy is Remedy.ELSEWHERE
    again = record.state is records.TrialState.INTERRUPTED or (lost and attempt < MAX_ATTEMPTS)
    if again:
        trial.set_user_attr(REQUEUE, True)
    study.tell(trial, state=TrialState.FAIL)
    if again:
        enqueue(study, trial.params, attempt + 1 if lost else attempt)


def give_up(study: optuna.Study, trial: optuna.Trial, why: str) -> None:
    """End a trial that says nothing of its config; nothing is put into the queue."""
    trial.set_user_attr(REQUEUE, True)
    trial.set_user_attr("failure", why)
    study.tell(trial, state=TrialState.FAIL)


def enqueue(study: optuna.Study, params: Mapping[str, Any], attempt: int) -> None:
    study.enqueue_trial(dict(params), user_attrs={"attempt": attempt})
