"""The report object: what a study found, as data. Every output (terminal, CSV, JSON, exports) reads it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from pydantic import BaseModel, ConfigDict, Field

from sweeper.baseline_arm import noise_floor
from sweeper.breakeven import BreakEven, break_even, break_even_accept_length
from sweeper.config import StudyConfig
from sweeper.findings import Findings, stored_findings
from sweeper.quality import lossy
from sweeper.records import EndedBy, Interval, Load, LoadPoint, OutputComparison, Pin, TrialRecord
from sweeper.server.failures import ADVICE
from sweeper.speculation import SpeculationConfig
from sweeper.stored_study import skipped_of
from sweeper.stored_trial import Speedups, config_of
from sweeper.verdict import Contender, confirmed_speedups, over_objective, winner


class Row(BaseModel):
    model_config = ConfigDict(frozen=True)


class LoadRow(Row):
    """One config at one load. Rates in output tokens per second, times in milliseconds."""

    load: str = Field(description="the load's name: c=4 (closed loop), 2.5/s (open loop), c=4 in=512-1023")
    concurrency: int = Field(description="requests in flight; 0: open loop")
    bucket: str = Field("", description="input lengths in tokens; empty: all prompts")
    output_tok_s: Interval
    speedup: Interval = Field(
        description="over the baseline on the same prompts, with its 95 % interval; open loop: of the mean latency"
    )
    confirmed: Interval | None = Field(
        None, description="the speedup measured again, in turns with the baseline; null: no finalist"
    )
    accept_length: Interval
    break_even_accept_length: float = Field(description="accept length above which the config pays here")
    step_time_ms: float
    ttft_p50_ms: float
    tpot_p50_ms: float
    e2e_p90_ms: float
    requests: int
    ended_by: EndedBy = Field(description="why no more requests were sent")
    unstable: bool = Field(description="the server became faster or slower while it was measured")
    notes: list[str] = []

    @property
    def best_known(self) -> Interval:
        """The confirmed speedup, or else the one of the search."""
        return self.confirmed or self.speedup


class TrialRow(Row):
    """One trial. ``objective`` is the geometric mean of its speedups at the objective loads, during the search."""

    number: int
    state: str = Field(description="COMPLETE, PRUNED, FAILED, INTERRUPTED, RUNNING or WAITING")
    config: SpeculationConfig = Field(description="the effective config")
    requested: SpeculationConfig | None = Field(None, description="what was asked for, where it differs")
    overrides: list[str] = []
    warnings: list[str] = []
    objective: Interval | None = None
    confirmed: Interval | None = Field(
        None, description="the objective measured again, in turns with the baseline, before the verdict"
    )
    confirmation_failure: str | None = None
    loads: list[LoadRow] = []
    break_even: dict[str, BreakEven] = Field(
        {}, description="break-even concurrency by input-length bucket ('' where there are none)"
    )
    outputs_equal: bool | None = Field(
        None, description="temperature-0 outputs equal the baseline's up to near ties; null: not compared"
    )
    comparison: OutputComparison | None = None
    lossy: list[str] = Field(
        [], description="why the config may change the target's output; such a config cannot win"
    )
    pruned: str | None = Field(None, description="why its remaining loads were not measured")
    failure_class: str | None = None
    failure: str | None = None
    next_step: str | None = Field(None, description="what a person can do about the failure")
    attempts: list[str] = Field(
        [], description="launches of this trial that failed before, and what was changed"
    )
    log_tail: list[str] = []
    pins: list[Pin] = Field([], description="flags set explicitly, and why")
    unequal: list[str] = Field([], description="what the server ran with otherwise than the baseline's")
    start_s: float | None = None
    measure_s: float | None = None

    def at(self, load: str) -> LoadRow | None:
        return next((row for row in self.loads if row.load == load), None)

    @property
    def best_known(self) -> Interval | None:
        """The confirmed objective, or else the one of the search."""
        return self.confirmed or self.objective


class BaselineRow(Row):
    """The server without speculation at one load."""

    load: str
    concurrency: int
    output_tok_s: Interval
    step_time_ms: float
    ttft_p50_ms: float
    requests: int
    ended_by: EndedBy
    unstable: bool
    notes: list[str] = []


class CheckRow(Row):
    """The baseline measured once more: its speed over that of the study's baseline."""

    when: str
    server: str
    drift: Interval | None
    beyond_tolerance: bool
    failure: str = ""


class StudyReport(Row):
    """A study's findings. ``trials`` are ranked: winners first, failures last."""

    study: str
    model: str
    engine_version: str
    hardware: str
    workload: str = Field(description="fingerprint of the prompts")
    prompt_notes: list[str] = Field([], description="how the prompts' texts came about")
    objective_loads: list[str]
    max_new_tokens: int
    temperature: float
    baseline: list[BaselineRow]
    checks: list[CheckRow] = Field([], description="the baseline re-checked before, after and between")
    noise_floor: OutputComparison | None = Field(
        None, description="the baseline's outputs against its own; null: it was measured only once"
    )
    trials: list[TrialRow]
    confirmation_rounds: int = 0
    skipped: dict[str, str] = Field(
        {}, description="configs left out since their launch could teach nothing, and why"
    )
    pins: list[Pin] = Field(
        [], description="flags that the baseline and the trials share explicitly, and why"
    )
    confounders: list[str] = Field([], description="what could not be made equal on both arms")
    lossy_allowed: bool = False
    winner: int | None = Field(None, description="number of the trial to deploy; null: do not speculate")
    created_at: str

    def trial(self, number: int) -> TrialRow:
        return next(t for t in self.trials if t.number == number)

    @property
    def best(self) -> TrialRow | None:
        """The trial to deploy; None where no config clearly beats no speculation."""
        return None if self.winner is None else self.trial(self.winner)

    @property
    def finished(self) -> bool:
        """Whether anything was measured to its end."""
        return any(t.state in ("COMPLETE", "PRUNED") for t in self.trials)


def build_report(
    config: StudyConfig, study: optuna.Study, findings: Findings | None = None, allow_lossy: bool = False
) -> StudyReport:
    """Read a study's findings, by default from its storage.

    With ``allow_lossy`` configs that may change the target's output can win.
    """
    found = findings or stored_findings(study)
    baseline = found.baseline
    names = study.user_attrs.get("objective_loads") or [str(load) for load in config.objective_loads]
    reader = _Reader(found, [Load.parse(name) for name in names], noise_floor(found.checks))
    trials = [reader.row(trial) for trial in found.trials]
    best = _winner(trials, config.confirmation.tie, allow_lossy)
    trials.sort(key=lambda trial: (trial.number != best, *_rank(trial)))
    return StudyReport(
        study=config.study,
        model=config.engine.model,
        engine_version=baseline.server_version if baseline else "",
        hardware=baseline.hardware.key if baseline and baseline.hardware else "",
        workload=baseline.workload if baseline else "",
        prompt_notes=study.user_attrs.get("prompt_notes", []),
        objective_loads=names,
        max_new_tokens=config.workload.max_new_tokens,
        temperature=config.workload.temperature,
        baseline=[_baseline_row(point) for point in baseline.load_points] if baseline else [],
        checks=[
            CheckRow(
                when=c.when,
                server=c.server,
                drift=c.drift,
                beyond_tolerance=c.beyond_tolerance,
                failure=c.failure,
            )
            for c in found.checks
        ],
        noise_floor=reader.noise_floor,
        trials=trials,
        confirmation_rounds=len(found.rounds),
        skipped=skipped_of(study.user_attrs),
        pins=list(baseline.pins) if baseline else [],
        confounders=_confounders(baseline, trials) if baseline else [],
        lossy_allowed=allow_lossy,
        winner=best,
        created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def _rank(trial: TrialRow) -> tuple[bool, bool, float, int]:
    """Completed trials first, then those that at least reached the objective, by speedup."""
    reached = trial.best_known
    return trial.state != "COMPLETE", reached is None, -(reached.value if reached else 0.0), trial.number


def _winner(trials: list[TrialRow], tie: float, allow_lossy: bool) -> int | None:
    """Where finalists were measured again, only they may win: the others' numbers are those of a search.

    A lossy config that is allowed may do so unconfirmed, since it was no finalist unless it was allowed then, too.
    """
    able = [t for t in trials if t.state == "COMPLETE" and (allow_lossy or not t.lossy)]
    if any(t.confirmed or t.confirmation_failure for t in trials):
        able = [t for t in able if t.confirmed or (t.lossy and not t.confirmation_failure)]
    contenders = [Contender(t.number, t.config, reached) for t in able if (reached := t.best_known)]
    best = winner(contenders, tie)
    return best.number if best else None


def _baseline_row(point: LoadPoint) -> BaselineRow:
    return BaselineRow(
        load=str(point.load),
        concurrency=point.load.concurrency,
        output_tok_s=point.output_tok_s,
        step_time_ms=point.step_time_s * 1000,
        ttft_p50_ms=point.ttft_s.p50 * 1000,
        requests=point.requests,
        ended_by=point.ended_by,
        unstable=point.unstable,
        notes=list(point.notes),
    )


class _Reader:
    """Makes a row of a trial."""

    def __init__(
        self, found: Findings, objective_loads: list[Load], noise_floor: OutputComparison | None
    ) -> None:
        self.found, self.objective_loads, self.noise_floor = found, objective_loads, noise_floor
        self.confirmed = confirmed_speedups(found.rounds)

    def row(self, trial: FrozenTrial) -> TrialRow:
        record, baseline = self.found.records.get(trial.number), self.found.baseline
        if record is None or baseline is None:
            state = "FAILED" if trial.state == TrialState.FAIL else trial.state.name
            return TrialRow(number=trial.number, state=state, config=config_of(trial))
        rounds = [done for done in self.found.rounds if trial.number in done.trials]
        confirmed = self.confirmed.get(trial.number, {})
        speedups = self.found.speedups[trial.number]
        rows = [_load_row(point, speedups, confirmed, baseline) for point in record.load_points]
        launches = [record, *(done.trials[trial.number] for done in rounds)]
        failures = [done.failures[trial.number] for done in rounds if trial.number in done.failures]
        return TrialRow(
            number=trial.number,
            state=record.state.value,
            config=record.effective,
            requested=record.requested if record.requested != record.effective else None,
            overrides=list(record.overrides),
            warnings=list(record.warnings),
            objective=over_objective(speedups, self.objective_loads),
            confirmed=over_objective(confirmed, self.objective_loads) if confirmed else None,
            confirmation_failure=failures[0] if failures else None,
            loads=rows,
            break_even=break_evens(rows),
            outputs_equal=record.comparison.equal if record.comparison else None,
            comparison=record.comparison,
            lossy=list(dict.fromkeys(reason for r in launches for reason in lossy(r, self.noise_floor))),
            pruned=record.pruned or None,
            failure_class=record.failure.kind.value if record.failure else None,
            failure=record.failure.message if record.failure else None,
            log_tail=list(record.failure.log_tail) if record.failure else [],
            next_step=ADVICE[record.failure.kind].next_step if record.failure else None,
            attempts=[f"{a.failure.kind.value}, then {a.change}" for a in record.attempts],
            pins=list(record.pins),
            unequal=differences(record.engine, baseline.engine),
            start_s=record.start_s,
            measure_s=record.measure_s,
        )


def break_evens(rows: list[LoadRow]) -> dict[str, BreakEven]:
    """Break-even concurrency by bucket, over the closed loops that were measured at more than one concurrency."""
    found = {}
    for bucket in dict.fromkeys(row.bucket for row in rows):
        curve = sorted(
            (row for row in rows if row.bucket == bucket and row.concurrency and " warm" not in row.load),
            key=lambda row: row.concurrency,
        )
        if len(curve) > 1:
            found[bucket] = break_even([r.concurrency for r in curve], [r.best_known for r in curve])
    return found


def differences(ours: Mapping[str, Any], baselines: Mapping[str, Any]) -> list[str]:
    """What a trial's server ran with otherwise than the baseline's, by both servers' own account.

    Values that only one of them reports say nothing. Free KV memory differs with every draft and is left out: it
    matters only where it limits the batch, which has an entry of its own.
    """
    shared = ours.keys() & baselines.keys() - {"max_total_num_tokens"}
    return [
        f"{name} is {ours[name]}, {baselines[name]} without speculation"
        for name in sorted(shared)
        if ours[name] != baselines[name]
    ]


def _confounders(baseline: TrialRecord, trials: list[TrialRow]) -> list[str]:
    """What stayed open before the launches, and what differed in the running servers, with how often."""
    counts = Counter(difference for trial in trials for difference in trial.unequal)
    return [*baseline.unpinned, *(f"{what} ({count} trials)" for what, count in counts.items())]


def _load_row(point: LoadPoint, speedups: Speedups, confirmed: Speedups, baseline: TrialRecord) -> LoadRow:
    base = baseline.at(point.load.cold)
    assert base is not None
    again = confirmed.get(point.load)
    return LoadRow(
        load=str(point.load),
        concurrency=point.load.concurrency,
        bucket=point.load.bucket,
        output_tok_s=point.output_tok_s,
        speedup=speedups[point.load].interval,
        confirmed=again.interval if again else None,
        accept_length=point.accept_length,
        break_even_accept_length=break_even_accept_length(point.step_time_s, base.step_time_s),
        step_time_ms=point.step_time_s * 1000,
        ttft_p50_ms=point.ttft_s.p50 * 1000,
        tpot_p50_ms=point.tpot_s.p50 * 1000,
        e2e_p90_ms=point.e2e_s.p90 * 1000,
        requests=point.requests,
        ended_by=point.ended_by,
        unstable=point.unstable,
        notes=list(point.notes),
    )
