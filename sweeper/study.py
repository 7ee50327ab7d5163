"""The sweep: an Optuna ask/tell loop over servers, resumable at any moment. The only writer of the storage."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeper import records
from sweeper.baseline import BaselineCache, baseline_key, baseline_settings, make_baseline
from sweeper.breakeven import Arm, speedup
from sweeper.errors import StudyChangedError, SweeperError
from sweeper.records import (
    Baseline,
    Hardware,
    Interval,
    TrialRecord,
    TrialResult,
    trial_record_json,
)
from sweeper.run_directory import RunDirectory, open_storage
from sweeper.search import make_sampler
from sweeper.search.candidates import REQUEUE, config_from, is_proposed, params_of, taken
from sweeper.server.failures import ADVICE, Remedy, concerns
from sweeper.space import Candidate
from sweeper.speculation import NO_SPECULATION, SpeculationConfig
from sweeper.stored_trial import attributes, label, objective, record_of, speedups_of
from sweeper.trial import TrialOrder, TrialPlan

MAX_ATTEMPTS = 2
"""Launches of one config whose node or actor was lost, before it counts as failed."""

BASELINE_TAG = "baseline"
NO_CANDIDATE = Candidate(NO_SPECULATION, NO_SPECULATION, ())


class Servers(Protocol):
    """Where trials run: at most one per server at a time. ``actors.pool`` has the one on Ray."""

    def hardware(self) -> Hardware: ...

    def idle(self) -> int: ...

    def size(self) -> int: ...

    def start(self, tag: str, order: TrialOrder) -> None: ...

    def wait(self, timeout_s: float) -> list[tuple[str, TrialResult]]: ...

    def phases(self) -> Mapping[str, str]: ...

    def interrupt(self) -> None: ...


class Display(Protocol):
    """What a person sees while a sweep runs. ``reports.live`` has the real one."""

    def baseline(self, baseline: Baseline, how: str) -> None: ...

    def drifted(self, baseline: Baseline, concurrency: int, drift: float) -> None: ...

    def skipped(self, configs: Mapping[SpeculationConfig, str]) -> None: ...

    def finished(self, number: int, record: TrialRecord, speedups: Mapping[int, Interval]) -> None: ...

    def tick(self, tally: Tally, phases: Mapping[str, str]) -> None: ...


@dataclass(frozen=True)
class Tally:
    """How far a sweep is. ``eta_s`` is None until a trial has finished."""

    planned: int
    complete: int = 0
    failed: int = 0
    running: int = 0
    best: tuple[str, float] | None = None
    eta_s: float | None = None


class Sweep:
    """One run of one study on some servers, from where the storage stands to its end."""

    def __init__(
        self,
        plan: TrialPlan,
        candidates: Sequence[Candidate],
        run: RunDirectory,
        servers: Servers,
        display: Display,
    ) -> None:
        self.plan, self.run, self.servers, self.display = plan, run, servers, display
        self.config = plan.study
        self.candidates = candidates
        self.by_config = {c.effective: c for c in candidates}
        self.sampler = make_sampler(self.config.search, candidates)
        self.study = optuna.create_study(
            study_name=self.config.study,
            storage=open_storage(self.config, run),
            sampler=self.sampler,
            direction="maximize",
            load_if_exists=True,
        )
        self.running: dict[str, tuple[optuna.Trial, float]] = {}

    def drive(self, remeasure_baseline: bool = False) -> None:
        """From where the storage stands to the end; a study with nothing left launches nothing.

        Raises:
            StudyChangedError: the storage holds a study of this name with other settings.
            SweeperError: there is no baseline, since the server fails without speculation.
            KeyboardInterrupt: after the running trials were stopped and put back into the queue.
        """
        settings = baseline_settings(self.plan, self.servers.hardware())
        self._same_settings_or_refuse(settings)
        self.run.write_study(self.config)
        self._requeue_stale()
        self._skip_the_pointless()
        if self._wants_more() or remeasure_baseline:
            baseline = self._baseline(settings, remeasure_baseline)
            self.run.write_baseline(baseline)
            self.study.set_user_attr(
                "baseline_record", trial_record_json.dump_python(baseline.record, mode="json")
            )
            self.study.set_user_attr("objective_loads", self.config.objective_loads)
            self._trials_to_the_end(baseline)

    def _baseline(self, settings: Mapping[str, Any], remeasure: bool) -> Baseline:
        """The baseline for the servers' hardware: cached and still true at the first objective load, or measured."""
        cache = BaselineCache(self.config.baseline.cache_dir)
        own = self._baseline_of_finished_trials()
        if own and remeasure:
            raise SweeperError(
                f"study {self.config.study!r} has trials that were compared with its baseline of {own.measured_at}; "
                "a new baseline needs a new study: add --name"
            )
        cached = None if remeasure else own or cache.load(baseline_key(settings))
        if cached:
            canary = self.config.objective_loads[0]
            drift = _drift(self._plain_server((canary,)).record, cached.record, canary)
            if abs(drift) <= self.config.baseline.tolerance:
                self.display.baseline(cached, f"reused, {drift:+.1%} at concurrency {canary} now")
                return cached
            self.display.drifted(cached, canary, drift)
            if own:
                raise SweeperError(
                    f"study {self.config.study!r} cannot go on: its baseline drifted by {drift:+.1%} at concurrency "
                    f"{canary}, more than baseline.tolerance; start a new study with --name, or raise the tolerance"
                )
        result = self._plain_server(tuple(self.config.workload.concurrency))
        self.run.write_requests(BASELINE_TAG, result.requests)
        baseline = make_baseline(settings, result)
        cache.save(baseline)
        self.display.baseline(baseline, "measured")
        return baseline

    def _baseline_of_finished_trials(self) -> Baseline | None:
        """The baseline that this study's finished trials were compared with; None while there are none."""
        finished = any(t.state == TrialState.COMPLETE for t in self._trials())
        return self.run.read_baseline() if finished else None

    def _plain_server(self, loads: tuple[int, ...]) -> TrialResult:
        """Measure the server without speculation at some loads."""
        self.servers.start(BASELINE_TAG, TrialOrder(NO_CANDIDATE, loads))
        finished: list[tuple[str, TrialResult]] = []
        while not finished:
            finished = self.servers.wait(1.0)
            self.display.tick(self.tally(), self.servers.phases())
        result = finished[0][1]
        self.run.write_log(BASELINE_TAG, result.log)
        if result.record.state is records.TrialState.INTERRUPTED:
            raise KeyboardInterrupt
        if result.record.failure:
            failure = result.record.failure
            tail = "\n".join(failure.log_tail[-15:])
            raise SweeperError(
                f"the server fails without speculation, so there is no baseline: {failure.kind.value}: "
                f"{failure.message}\n{tail}"
            )
        return result

    def _trials_to_the_end(self, baseline: Baseline) -> None:
        """Run trials until the budget or the space is used up."""
        try:
            while self._wants_more() or self.running:
                while self.servers.idle() and self._wants_more():
                    self._start_next(baseline)
                for tag, result in self.servers.wait(1.0):
                    self._finish(tag, result, baseline)
                self.display.tick(self.tally(), self.servers.phases())
        except KeyboardInterrupt:
            self._stop_running(baseline)
            raise

    def _wants_more(self) -> bool:
        launched = [
            t for t in self._trials() if t.state != TrialState.WAITING and not t.user_attrs.get(REQUEUE)
        ]
        if len(launched) >= self.planned():
            return False
        return bool(self._queued() or self.sampler.remaining(self.study))

    def planned(self) -> int:
        """Launches this study may make in all."""
        limit = self.config.search.max_trials
        there = len(self.candidates) - len(self.sampler.skipped)
        return min(limit or there, there)

    def _trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def _queued(self) -> list[FrozenTrial]:
        return [t for t in self._trials() if t.state == TrialState.WAITING]

    def _start_next(self, baseline: Baseline) -> None:
        trial = self.study.ask(self.sampler.space)
        candidate = self.by_config.get(config_from(trial.params))
        if candidate is None:  # queued before the study file changed
            trial.set_user_attr(REQUEUE, True)
            trial.set_user_attr("failure", "no longer in the study file's space")
            self.study.tell(trial, state=TrialState.FAIL)
            return
        trial.set_user_attr("config", str(candidate.effective))
        tag = label(trial.number)
        self.running[tag] = (trial, time.monotonic())
        self.servers.start(
            tag, TrialOrder(candidate, tuple(self.config.workload.concurrency), baseline.outputs)
        )

    def _finish(self, tag: str, result: TrialResult, baseline: Baseline) -> None:
        trial, _ = self.running.pop(tag)
        record = result.record
        speedups = {
            c: speedup(_arm(result.requests, record, c), _arm(baseline.requests, baseline.record, c))
            for c in self.config.workload.concurrency
            if record.at(c)
        }
        for name, value in attributes(record, speedups).items():
            trial.set_user_attr(name, value)
        self.run.write_log(tag, result.log)
        self.run.write_requests(tag, result.requests)
        if record.state is records.TrialState.COMPLETE:
            self.study.tell(trial, objective(speedups, self.config.objective_loads))
        else:
            self._fail(trial, record)
        self.display.finished(trial.number, record, speedups)
        self._skip_the_pointless()

    def _skip_the_pointless(self) -> None:
        """Leave out candidates whose launch could teach nothing.

        One would fail as another did (a draft that cannot load fails all its configs), or it is what the server of
        another trial really ran. This follows from the stored trials alone, so a resumed study skips the same ones.
        """
        ended = [
            (trial.number, record)
            for trial in self._trials()
            if trial.state.is_finished() and not trial.user_attrs.get(REQUEUE)
            if (record := record_of(trial)) is not None
        ]
        used = taken(self.study)
        skipped = {
            config: why
            for config in self.by_config
            if config not in used
            for number, record in ended
            if (why := _reason_to_skip(config, number, record))
        }
        new = {config: why for config, why in skipped.items() if config not in self.sampler.skipped}
        self.sampler.skipped = skipped
        if new:
            self.study.set_user_attr("skipped", {str(config): why for config, why in skipped.items()})
            self.display.skipped(new)

    def _fail(self, trial: optuna.Trial, record: TrialRecord) -> None:
        """Tell a failure; a config that is not to blame goes back into the queue."""
        attempt = int(trial.user_attrs.get("attempt", 1))
        lost = record.failure is not None and ADVICE[record.failure.kind].remedy is Remedy.ELSEWHERE
        again = record.state is records.TrialState.INTERRUPTED or (lost and attempt < MAX_ATTEMPTS)
        if again:
            trial.set_user_attr(REQUEUE, True)
        self.study.tell(trial, state=TrialState.FAIL)
        if again:
            self._enqueue(trial.params, attempt + 1 if lost else attempt)

    def _enqueue(self, params: Mapping[str, Any], attempt: int) -> None:
        self.study.enqueue_trial(dict(params), user_attrs={"attempt": attempt})

    def _requeue_stale(self) -> None:
        """Trials that an earlier driver left running: failed, and first in the queue."""
        for trial in self._trials():
            if trial.state != TrialState.RUNNING:
                continue
            record = record_of(trial)
            if (
                record is not None and record.state is records.TrialState.COMPLETE
            ):  # it ended before it was told
                self.study.tell(trial.number, objective(speedups_of(trial), self.config.objective_loads))
                continue
            storage, identity = self.study._storage, trial._trial_id
            storage.set_trial_user_attr(identity, REQUEUE, True)
            storage.set_trial_user_attr(
                identity, "failure", "INTERRUPTED: the driver ended while this trial ran"
            )
            self.study.tell(trial.number, state=TrialState.FAIL)
            if is_proposed(trial) and config_from(params_of(trial)) in self.by_config:
                self._enqueue(trial.params, int(trial.user_attrs.get("attempt", 1)))

    def _stop_running(self, baseline: Baseline) -> None:
        self.servers.interrupt()
        deadline = time.monotonic() + 60
        while self.running and time.monotonic() < deadline:
            for tag, result in self.servers.wait(1.0):
                self._finish(tag, result, baseline)

    def _same_settings_or_refuse(self, wanted: Mapping[str, Any]) -> None:
        """Trials compare only under equal settings; those of the first run are kept with the study.

        The three numbers of the space may change; Optuna keeps a parameter's categories for good.
        """
        own = {
            "drafts": {name: draft.path for name, draft in self.config.space.drafts.items()},
            "algorithms": sorted({c.effective.algorithm for c in self.candidates}),
            "drafts_in_use": sorted({c.effective.draft for c in self.candidates}),
            "objective_loads": self.config.objective_loads,
            "options": {
                name: sorted({str(c.effective.option(name)) for c in self.candidates})
                for name in self.sampler.options
            },
        }
        settings = json.loads(json.dumps({**wanted, **own}))
        before = self.study.user_attrs.get("settings")
        if before is None:
            self.study.set_user_attr("settings", settings)
        elif before != settings:
            changed = sorted(k for k in before.keys() | settings.keys() if before.get(k) != settings.get(k))
            raise StudyChangedError(
                f"study {self.config.study!r} was measured with other settings ({', '.join(changed)} changed); "
                "give the new one a name of its own with --name, or undo the change"
            )

    def tally(self) -> Tally:
        """Where the sweep stands, for the display."""
        trials = self._trials()
        complete = [t for t in trials if t.state == TrialState.COMPLETE]
        failed = [t for t in trials if t.state == TrialState.FAIL and not t.user_attrs.get(REQUEUE)]
        best = max(complete, key=lambda t: t.value or 0.0, default=None)
        tally = Tally(self.planned(), len(complete), len(failed), len(self.running))
        if best is not None:
            tally = replace(tally, best=(best.user_attrs["config"], best.value or 0.0))
        durations = [t.duration.total_seconds() for t in complete if t.duration]
        if durations:
            mean = sum(durations) / len(durations)
            left = self.planned() - len(complete) - len(failed)
            spent = sum(time.monotonic() - started for _, started in self.running.values())
            tally = replace(tally, eta_s=max(0.0, (left * mean - spent) / self.servers.size()))
        return tally


def _reason_to_skip(config: SpeculationConfig, number: int, record: TrialRecord) -> str:
    """Why a trial makes the launch of another config pointless; empty if it does not."""
    if record.failure and concerns(record.failure, record.effective, config):
        return f"fails as trial {number} did: {record.failure.kind.value}: {record.failure.message}"
    if not record.failure and record.effective == config:
        return f"is what the server of trial {number} ran"
    return ""


def _drift(now: TrialRecord, before: TrialRecord, concurrency: int) -> float:
    """Relative change of the output rate at a load."""
    new, old = now.at(concurrency), before.at(concurrency)
    assert new is not None
    assert old is not None
    return new.output_tok_s.value / old.output_tok_s.value - 1


def _arm(requests: Sequence[records.RequestRecord], record: TrialRecord, concurrency: int) -> Arm:
    point = record.at(concurrency)
    assert point is not None
    return Arm(point, [r for r in requests if r.concurrency == concurrency])
