"""What the loop asks of its study's trials after every single one: kept up to date, and not counted anew each time."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import replace

from optuna.trial import FrozenTrial, TrialState

from sweeper.analysis.verdict import Contender, over_objective
from sweeper.records import Load, OutputComparison, TrialRecord
from sweeper.search.candidates import REQUEUE, is_proposed
from sweeper.storage.stored_trial import config_of, record_of, speedups_of
from sweeper.study.newly_ended import NewlyEnded
from sweeper.study.progress import Ended
from sweeper.trial.quality import THRESHOLDS, lossy


class TrialBook:
    """``update`` it with all trials of the study before reading anything. ``loads`` are the objective's."""

    def __init__(self, loads: Sequence[Load]) -> None:
        self.loads = loads
        self.ended = Ended()
        self._newly = NewlyEnded()
        self._ranked: list[tuple[float, int, Contender, TrialRecord]] = []
        """Complete trials, the highest lower bound first, with what of their records tells whether they are lossy."""

    def update(self, trials: Sequence[FrozenTrial]) -> list[tuple[int, TrialRecord]]:
        """Take in what has changed; the records, by number, of trials that have ended and say something."""
        told = []
        for trial in self._newly(trials):
            if trial.user_attrs.get(REQUEUE) or not is_proposed(trial):
                continue
            record = record_of(trial)
            took = (record.start_s, record.measure_s, record.launched) if record else (0.0, 0.0)
            self.ended = self.ended.and_(trial, *took)
            if record is not None:
                told.append((trial.number, record))
                self._rank(trial, record)
        return told

    def _rank(self, trial: FrozenTrial, record: TrialRecord) -> None:
        reached = over_objective(speedups_of(trial), self.loads)
        if trial.state == TrialState.COMPLETE and reached:
            contender = Contender(trial.number, config_of(trial), reached)
            bisect.insort(self._ranked, (-reached.low, trial.number, contender, _evidence(record)))

    def launched(self) -> int:
        """Trials that count as launches: ended ones that say something of their configs, and those that run."""
        running = [t for t in self._newly.open if t.state == TrialState.RUNNING and is_proposed(t)]
        return self.ended.trials + len(running)

    def queued(self) -> int:
        return sum(trial.state == TrialState.WAITING for trial in self._newly.open)

    def contenders(self, floor: OutputComparison | None, allow_lossy: bool) -> Iterator[Contender]:
        """Trials that may win, the highest lower bound first; ``floor``: the baseline's outputs against its own."""
        for _, _, contender, record in self._ranked:
            if allow_lossy or not lossy(record, floor):
                yield contender


def _evidence(record: TrialRecord) -> TrialRecord:
    """Of a record what ``lossy`` looks at; whole ones are large."""
    settings = {name: record.engine[name] for name in THRESHOLDS if name in record.engine}
    return replace(
        TrialRecord(record.requested, record.effective, record.state),
        comparison=record.comparison,
        simulated=record.simulated,
        engine=settings,
    )
