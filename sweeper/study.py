"""The sweep: an Optuna ask/tell loop over servers, resumable at any moment. The only writer of the storage."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeper import records
from sweeper.baseline import baseline_settings
from sweeper.baseline_arm import BaselineArm, noise_floor
from sweeper.breakeven import speedup_at
from sweeper.confirmation import Confirmation
from sweeper.errors import StudyChangedError, SweeperError
from sweeper.pruning import Bar
from sweeper.quality import lossy
from sweeper.records import (
    Baseline,
    BaselineCheck,
    ConfirmationRound,
    Load,
    TrialRecord,
    TrialResult,
    checks_json,
    rounds_json,
    trial_record_json,
)
from sweeper.run_directory import RunDirectory, open_storage
from sweeper.search import make_sampler
from sweeper.search.candidates import REQUEUE, config_from, is_proposed, params_of, taken
from sweeper.server.failures import ADVICE, Remedy, concerns
from sweeper.space import Candidate
from sweeper.speculation import SpeculationConfig
from sweeper.stored_trial import (
    CONFIRMATION,
    Speedups,
    attributes,
    config_of,
    label,
    objective,
    record_of,
    rounds_of,
    speedups_of,
)
from sweeper.surroundings import Display, Servers, Tally
from sweeper.trial_order import TrialOrder, TrialPlan
from sweeper.verdict import Contender, finalists, over_objective

MAX_ATTEMPTS = 2
"""Launches of one config whose node or actor was lost, before it counts as failed."""

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


@dataclass(frozen=True)
class Wishes:
    """What a person asks for on the command line."""

    remeasure_baseline: bool = False
    allow_lossy: bool = False


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
        self.stage = "baseline"
        self.wishes = Wishes()

    def drive(self, wishes: Wishes = Wishes()) -> None:
        """From where the storage stands to the end; a study with nothing left launches nothing.

        Raises:
            StudyChangedError: the storage holds a study of this name with other settings.
            SweeperError: there is no baseline, since the server fails without speculation.
            KeyboardInterrupt: after the running trials were stopped and put back into the queue.
        """
        self.wishes = wishes
        settings = baseline_settings(self.plan, self.servers.hardware())
        self._same_settings_or_refuse(settings)
        self.run.write_study(self.config)
        self._requeue_stale()
        self._skip_the_pointless()
        own = self._baseline_of_finished_trials()
        if not (self._wants_more() or wishes.remeasure_baseline or (own and self._unchecked())):
            return
        arm = BaselineArm(self.plan, self.servers, self.run, self.display, self._add_check, self.tick)
        baseline = arm.get(settings, own, wishes.remeasure_baseline)
        self.run.write_baseline(baseline)
        self.study.set_user_attr(
            "baseline_record", trial_record_json.dump_python(baseline.record, mode="json")
        )
        self.study.set_user_attr("prompt_notes", list(self.plan.prompts.notes))
        self.study.set_user_attr("objective_loads", [str(load) for load in self.config.objective_loads])
        self.stage = ""
        self._trials_to_the_end(baseline, arm)
        seen = self._confirm(baseline)
        self.stage = "checking the baseline"
        arm.check_at_the_end(baseline, seen)
        self.study.set_user_attr("checked_after", self._finished())
        self.stage = ""

    def tick(self, stage: str = "") -> None:
        self.stage = stage or self.stage
        self.display.tick(self.tally(), self.servers.phases())

    def _baseline_of_finished_trials(self) -> Baseline | None:
        """The baseline that this study's finished trials were compared with; None while there are none."""
        if not self._finished():
            return None
        own = self.run.read_baseline()
        if own is None:
            raise SweeperError(
                f"run {self.run.path}: the baseline that the finished trials were compared with (baseline.json and "
                "baseline.parquet) is missing or unreadable here; continue where it was begun, or start a new study "
                "with --name"
            )
        return own

    def _finished(self) -> int:
        """Trials with a result; they and the rounds of confirmation are what a check of the baseline vouches for."""
        return sum(t.state in FINISHED for t in self._trials()) + len(self._rounds())

    def _checks(self) -> list[BaselineCheck]:
        return list(checks_json.validate_python(self.study.user_attrs.get("baseline_checks", [])))

    def _add_check(self, check: BaselineCheck) -> None:
        known = (*self._checks(), check)
        self.study.set_user_attr("baseline_checks", checks_json.dump_python(known, mode="json"))

    def _rounds(self) -> tuple[ConfirmationRound, ...]:
        return rounds_of(self.study.user_attrs)

    def _unchecked(self) -> bool:
        """Whether finalists are still to be confirmed, or the baseline to be checked after the last trial."""
        return bool(self._unconfirmed()) or self.study.user_attrs.get("checked_after") != self._finished()

    def _unconfirmed(self) -> dict[int, Candidate]:
        """The finalists, by trial, as long as they were not all measured again often enough."""
        chosen = self._finalists()
        together = [done for done in self._rounds() if chosen.keys() <= done.trials.keys()]
        return chosen if len(together) < self.config.confirmation.repeats else {}

    def _finalists(self) -> dict[int, Candidate]:
        chosen = finalists(self._contenders(), self.config.confirmation.finalists)
        return {c.number: self.by_config[c.config] for c in chosen if c.config in self.by_config}

    def _contenders(self) -> list[Contender]:
        """The complete trials that may win: those that keep the target's output, unless a person allows others."""
        floor = noise_floor(self._checks())
        found = []
        for trial in self._trials():
            record = record_of(trial) if trial.state == TrialState.COMPLETE else None
            reached = over_objective(speedups_of(trial), self.config.objective_loads)
            if record and reached and (self.wishes.allow_lossy or not lossy(record, floor)):
                found.append(Contender(trial.number, config_of(trial), reached))
        return found

    def _confirm(self, baseline: Baseline) -> list[BaselineCheck]:
        """Measure the finalists and the baseline again, in turns; the checks of the baseline on the way."""
        confirmation = Confirmation(self.plan, self.servers, self.run, self.tick)
        seen: list[BaselineCheck] = []
        spoiled = 0
        while (chosen := self._unconfirmed()) and spoiled < MAX_ATTEMPTS:
            number = len(self._rounds()) + 1
            done, check = confirmation.round(number, baseline, chosen)
            self._add_check(check)
            seen.append(check)
            if done is None:
                spoiled += 1
                continue
            stored = rounds_json.dump_python((done,), mode="json")
            self.study.set_user_attr(f"{CONFIRMATION}{number}", stored[0])
            self.display.confirmed(done, self.config.confirmation.repeats)
        return seen

    def _trials_to_the_end(self, baseline: Baseline, arm: BaselineArm) -> None:
        """Run trials until the budget or the space is used up; a server that is new shows first that it compares."""
        canaries: set[str] = set()
        try:
            while self._wants_more() or self.running or canaries:
                for server in self.servers.idle() if self._wants_more() else ():
                    if server not in arm.equal:
                        tag, order = arm.canary(baseline, "start", server)
                        self.servers.start(tag, order, server)
                        canaries.add(tag)
                    elif self._wants_more():
                        self._start_next(baseline, server)
                for tag, result in self.servers.wait(1.0):
                    if tag not in canaries:
                        self._finish(tag, result, baseline)
                        continue
                    canaries.remove(tag)
                    self.run.write_result(tag, result)
                    check = arm.judge(baseline, "start", result)
                    if check.beyond_tolerance:
                        arm.turn_away(check)
                self.tick()
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

    def _start_next(self, baseline: Baseline, server: str) -> None:
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
        order = TrialOrder(candidate, self._loads(), baseline.outputs, self._bar(baseline))
        self.servers.start(tag, order, server)

    def _loads(self) -> tuple[Load, ...]:
        """The objective loads first, so that a hopeless config ends there."""
        first = self.config.objective_loads
        return (*first, *(load for load in self.config.workload.loads if load not in first))

    def _bar(self, baseline: Baseline) -> Bar | None:
        """What a trial must be able to reach: the lower bound of the best config so far, or no speculation."""
        if not self.config.search.prune:
            return None
        bars = {"no speculation": 1.0, **{f"trial {c.number}": c.speedup.low for c in self._contenders()}}
        holder = max(bars, key=lambda name: bars[name])
        requests = {load: baseline.requests_at(load) for load in self.config.objective_loads}
        return Bar(requests, bars[holder], holder)

    def _finish(self, tag: str, result: TrialResult, baseline: Baseline) -> None:
        trial, _ = self.running.pop(tag)
        record = result.record
        speedups = {
            point.load: speedup_at(point.load, result.requests, baseline.requests)
            for point in record.load_points
        }
        self.run.write_result(tag, result)
        for name, value in attributes(record, speedups).items():
            trial.set_user_attr(name, value)
        if record.state in (records.TrialState.COMPLETE, records.TrialState.PRUNED):
            self._tell(trial, record, speedups)
        else:
            self._fail(trial, record)
        self.display.finished(trial.number, record, speedups)
        self._skip_the_pointless()

    def _tell(self, trial: optuna.Trial, record: TrialRecord, speedups: Speedups) -> None:
        value = objective(speedups, self.config.objective_loads)
        if record.state is records.TrialState.COMPLETE:
            self.study.tell(trial, value)
        else:  # Optuna takes a pruned trial's last report for its value
            trial.report(value, step=0)
            self.study.tell(trial, state=TrialState.PRUNED)

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
            if record is not None and record.state in (
                records.TrialState.COMPLETE,
                records.TrialState.PRUNED,
            ):  # it ended before it was told
                self._tell(optuna.Trial(self.study, trial._trial_id), record, speedups_of(trial))
                continue
            if record is not None and record.state is records.TrialState.FAILED:
                self._fail(optuna.Trial(self.study, trial._trial_id), record)
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
                if tag in self.running:  # and no canary
                    self._finish(tag, result, baseline)

    def _same_settings_or_refuse(self, wanted: Mapping[str, Any]) -> None:
        """Trials compare only under equal settings; those of the first run are kept with the study.

        The three numbers of the space may change; Optuna keeps a parameter's categories for good.
        """
        own = {
            "drafts": {name: draft.path for name, draft in self.config.space.drafts.items()},
            "algorithms": sorted({c.effective.algorithm for c in self.candidates}),
            "drafts_in_use": sorted({c.effective.draft for c in self.candidates}),
            "objective_loads": [str(load) for load in self.config.objective_loads],
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
        pruned = [t for t in trials if t.state == TrialState.PRUNED]
        failed = [t for t in trials if t.state == TrialState.FAIL and not t.user_attrs.get(REQUEUE)]
        best = max(complete, key=lambda t: t.value or 0.0, default=None)
        tally = Tally(
            self.planned(), len(complete), len(pruned), len(failed), len(self.running), stage=self.stage
        )
        if best is not None:
            tally = replace(tally, best=(best.user_attrs["config"], best.value or 0.0))
        durations = [t.duration.total_seconds() for t in (*complete, *pruned) if t.duration]
        if durations:
            mean = sum(durations) / len(durations)
            left = self.planned() - len(complete) - len(pruned) - len(failed)
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
