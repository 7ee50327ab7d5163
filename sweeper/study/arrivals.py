"""Results on their way from the servers into the run directory, also while the storage is waited for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import optuna

from sweeper.breakeven import speedup_at
from sweeper.errors import StorageLostError
from sweeper.records import Baseline, TrialResult
from sweeper.runs.directory import RunDirectory
from sweeper.runs.journal import entry_text
from sweeper.storage.stored_trial import Speedups
from sweeper.study.surroundings import Servers


class Arrivals:
    """Takes results in, and keeps those of trials safe before anything is done with them.

    ==========  ==========================================================================================
    a result    while
    ==========  ==========================================================================================
    waiting     it has come in, and the sweep has not asked for it yet
    unwritten   it is on its way into the run directory, or could not be written there
    written     it is there with its journal: even if the driver is killed now, the next one puts it into the study
    ==========  ==========================================================================================

    ``running`` are the sweep's trials by tag; results of other tags are canaries, which can be measured again.
    """

    def __init__(
        self, run: RunDirectory, servers: Servers, running: Mapping[str, tuple[optuna.Trial, float]]
    ) -> None:
        self.run, self.servers, self.running = run, servers, running
        self._waiting: list[tuple[str, TrialResult]] = []
        self._unwritten: dict[str, tuple[int, TrialResult]] = {}
        self._written: dict[str, Speedups] = {}

    def begin(self, identity: str, baseline: Baseline) -> None:
        """The study that results belong to from now on, and what their speedups are over."""
        self._identity, self._baseline = identity, baseline

    def take(self, timeout_s: float) -> Iterator[tuple[str, TrialResult]]:
        """Results that came in, at least those of the next ``timeout_s`` seconds; what is not taken stays."""
        if not self._waiting:
            self._waiting += self.servers.wait(timeout_s)
        while self._waiting:
            yield self._waiting.pop(0)

    def use_the_time(self) -> None:
        """While something else is waited for: write what comes in, if that is possible at once."""
        for tag, result in self.servers.wait(0.0):
            self._waiting.append((tag, result))
            if tag in self.running:
                with contextlib.suppress(StorageLostError):  # then the sweep writes it, with more patience
                    self._write(RunDirectory(self.run.path), tag, self.running[tag][0].number, result)

    def keep(self, tag: str, number: int, result: TrialResult) -> Speedups:
        """Requests, log and journal of a trial's result go into the run directory; its speedups.

        Raises:
            StorageLostError: they cannot be written; ``rescue`` tries once more.
        """
        if tag not in self._written:
            self._unwritten[tag] = number, result
            self._write(self.run, tag, number, result)
            del self._unwritten[tag]
        return self._written.pop(tag)

    def rescue(self) -> Iterator[str]:
        """Try once more to write what could not be written; what is lost, in words."""
        for tag, (number, result) in list(self._unwritten.items()):
            try:
                self.keep(tag, number, result)
            except StorageLostError as error:
                yield f"{tag} is lost and will be measured again: {error}"

    def _write(self, run: RunDirectory, tag: str, number: int, result: TrialResult) -> None:
        record, plain = result.record, self._baseline
        speedups = {
            point.load: speedup_at(point.load, result.requests, plain.requests, plain.repeatability)
            for point in record.load_points
        }
        run.write_result(tag, result)
        run.write_journal(tag, entry_text(self._identity, number, record, speedups))
        self._written[tag] = speedups
