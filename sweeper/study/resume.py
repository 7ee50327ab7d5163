"""Takes a study up where an earlier driver left it, however that one ended."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeper import records
from sweeper.records import Load, TrialRecord
from sweeper.runs.directory import RunDirectory
from sweeper.runs.journal import read_entry
from sweeper.search.candidates import config_from, is_proposed, params_of
from sweeper.speculation import SpeculationConfig
from sweeper.storage.stored_study import FINISHED, StoredStudy
from sweeper.storage.stored_trial import Speedups, config_of, label, record_of, speedups_of
from sweeper.study.ending import end_trial, enqueue, give_up


def take_up(
    stored: StoredStudy, run: RunDirectory, configs: Collection[SpeculationConfig], loads: Sequence[Load]
) -> Iterator[str]:
    """End the trials that an earlier driver left running, and say what became of them.

    One whose result lies in the run directory, or in the storage but for its state, has it; any other config is put
    into the queue, if it is still among ``configs``. ``loads`` are the objective's.
    """
    for trial in stored.trials():
        if trial.state != TrialState.RUNNING:
            continue
        alive = optuna.Trial(stored.study, trial._trial_id)
        ended = _result_of(trial, stored, run)
        if ended is not None:
            end_trial(stored.study, alive, *ended, loads)
            yield f"trial {trial.number} had ended before its driver did: its result is kept"
            continue
        again = is_proposed(trial) and config_from(params_of(trial)) in configs
        give_up(stored.study, alive, "INTERRUPTED: the driver ended while this trial ran")
        if again:
            enqueue(stored.study, params_of(trial), int(trial.user_attrs.get("attempt", 1)))
            yield f"trial {trial.number} was cut off: {config_of(trial)} is measured again"


def _result_of(
    trial: FrozenTrial, stored: StoredStudy, run: RunDirectory
) -> tuple[TrialRecord, Speedups] | None:
    """What a trial came to, if that is known."""
    entry = read_entry(run.result(label(trial.number)), stored.identity, trial.number)
    if entry is not None:
        return entry.record, entry.by_load
    record = record_of(trial)
    if record is None or record.state is records.TrialState.INTERRUPTED:
        return None
    return record, speedups_of(trial)


def missing_raw_data(stored: StoredStudy, run: RunDirectory) -> list[int]:
    """Trials with a result whose requests or log do not lie in this run directory: measured from another one."""
    ended = [trial.number for trial in stored.trials() if trial.state in FINISHED]
    return [
        number
        for number in ended
        if not (run.requests(label(number)).is_file() and run.log(label(number)).is_file())
    ]
