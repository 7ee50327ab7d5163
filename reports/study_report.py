"""The report object: what a study found, as data. Every output (terminal, CSV, JSON, exports) reads it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState
from pydantic import BaseModel, ConfigDict, Field

from sweeper.breakeven import BreakEven, break_even, break_even_accept_length
from sweeper.config import StudyConfig
from sweeper.records import Interval, LoadPoint, Pin, TrialRecord, trial_record_json
from sweeper.search.candidates import REQUEUE, is_proposed
from sweeper.server.failures import ADVICE
from sweeper.speculation import SpeculationConfig
from sweeper.stored_trial import config_of, record_of, speedups_of


class Row(BaseModel):
    model_config = ConfigDict(frozen=True)


class LoadRow(Row):
    """One config at one concurrency. Rates in output tokens per second, times in milliseconds."""

    concurrency: int
    output_tok_s: Interval
    speedup: Interval = Field(description="over the baseline at the same load, with its 95 % interval")
    accept_length: float
    break_even_accept_length: float = Field(description="accept length above which the config pays here")
    step_time_ms: float
    ttft_p50_ms: float
    tpot_p50_ms: float
    e2e_p90_ms: float
    requests: int


class TrialRow(Row):
    """One trial. ``objective`` is the geometric mean of its speedups at the objective loads."""

    number: int
    state: str = Field(description="COMPLETE, FAILED, INTERRUPTED, RUNNING or WAITING")
    config: SpeculationConfig = Field(description="the effective config")
    requested: SpeculationConfig | None = Field(None, description="what was asked for, where it differs")
    overrides: list[str] = []
    warnings: list[str] = []
    objective: Interval | None = None
    loads: list[LoadRow] = []
    break_even: BreakEven | None = None
    outputs_equal: bool | None = Field(
        None, description="temperature-0 outputs equal the baseline's up to near ties; null: not compared"
    )
    outputs_different: int = Field(
        0, description="outputs that left the baseline's where the server was sure; such a config cannot win"
    )
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

    def at(self, concurrency: int) -> LoadRow | None:
        return next((row for row in self.loads if row.concurrency == concurrency), None)


class BaselineRow(Row):
    """The server without speculation at one concurrency."""

    concurrency: int
    output_tok_s: Interval
    step_time_ms: float
    ttft_p50_ms: float


class StudyReport(Row):
    """A study's findings. ``trials`` are ranked: winners first, failures last."""

    study: str
    model: str
    engine_version: str
    hardware: str
    objective_loads: list[int]
    max_new_tokens: int
    temperature: float
    baseline: list[BaselineRow]
    trials: list[TrialRow]
    skipped: dict[str, str] = Field(
        {}, description="configs left out since their launch could teach nothing, and why"
    )
    pins: list[Pin] = Field(
        [], description="flags that the baseline and the trials share explicitly, and why"
    )
    confounders: list[str] = Field([], description="what could not be made equal on both arms")
    winner: int | None = Field(None, description="number of the trial to deploy; null: do not speculate")
    created_at: str

    def trial(self, number: int) -> TrialRow:
        return next(t for t in self.trials if t.number == number)

    @property
    def best(self) -> TrialRow | None:
        """The trial to deploy; None where no config clearly beats no speculation."""
        return None if self.winner is None else self.trial(self.winner)


def build_report(config: StudyConfig, study: optuna.Study) -> StudyReport:
    """Read a study's storage; works while the sweep runs, and before its first trial ended."""
    stored = study.user_attrs.get("baseline_record")
    baseline = trial_record_json.validate_python(stored) if stored else None
    loads = study.user_attrs.get("objective_loads", config.objective_loads)
    trials = [
        _trial_row(trial, baseline, loads)
        for trial in study.get_trials(deepcopy=False)
        if not trial.user_attrs.get(REQUEUE) and is_proposed(trial)
    ]
    trials.sort(key=lambda t: (t.objective is None, -(t.objective.value if t.objective else 0), t.number))
    return StudyReport(
        study=config.study,
        model=config.engine.model,
        engine_version=baseline.server_version if baseline else "",
        hardware=baseline.hardware.key if baseline and baseline.hardware else "",
        objective_loads=loads,
        max_new_tokens=config.workload.max_new_tokens,
        temperature=config.workload.temperature,
        baseline=[_baseline_row(point) for point in baseline.load_points] if baseline else [],
        trials=trials,
        skipped=study.user_attrs.get("skipped", {}),
        pins=list(baseline.pins) if baseline else [],
        confounders=_confounders(baseline, trials) if baseline else [],
        winner=_winner(trials),
        created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def _winner(trials: list[TrialRow]) -> int | None:
    """The best config whose outputs are the baseline's and whose whole interval lies above 1.0."""
    for trial in trials:
        if trial.objective and trial.objective.low > 1 and not trial.outputs_different:
            return trial.number
    return None


def _baseline_row(point: LoadPoint) -> BaselineRow:
    return BaselineRow(
        concurrency=point.concurrency,
        output_tok_s=point.output_tok_s,
        step_time_ms=point.step_time_s * 1000,
        ttft_p50_ms=point.ttft_s.p50 * 1000,
    )


def _trial_row(trial: FrozenTrial, baseline: TrialRecord | None, objective_loads: list[int]) -> TrialRow:
    record = record_of(trial)
    if record is None or baseline is None:
        state = "FAILED" if trial.state == TrialState.FAIL else trial.state.name
        return TrialRow(number=trial.number, state=state, config=config_of(trial))
    speedups = speedups_of(trial)
    rows = [_load_row(point, speedups[point.concurrency], baseline) for point in record.load_points]
    complete = trial.state == TrialState.COMPLETE
    return TrialRow(
        number=trial.number,
        state=record.state.value,
        config=record.effective,
        requested=record.requested if record.requested != record.effective else None,
        overrides=list(record.overrides),
        warnings=list(record.warnings),
        objective=_geometric_mean([speedups[c] for c in objective_loads]) if complete else None,
        loads=rows,
        break_even=break_even([r.concurrency for r in rows], [r.speedup for r in rows]) if complete else None,
        outputs_equal=record.comparison.equal if record.comparison else None,
        outputs_different=record.comparison.different if record.comparison else 0,
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


def _load_row(point: LoadPoint, speedup: Interval, baseline: TrialRecord) -> LoadRow:
    base = baseline.at(point.concurrency)
    assert base is not None
    return LoadRow(
        concurrency=point.concurrency,
        output_tok_s=point.output_tok_s,
        speedup=speedup,
        accept_length=point.accept_length.value,
        break_even_accept_length=break_even_accept_length(point.step_time_s, base.step_time_s),
        step_time_ms=point.step_time_s * 1000,
        ttft_p50_ms=point.ttft_s.p50 * 1000,
        tpot_p50_ms=point.tpot_s.p50 * 1000,
        e2e_p90_ms=point.e2e_s.p90 * 1000,
        requests=point.requests,
    )


def _geometric_mean(intervals: list[Interval]) -> Interval:
    def mean(values: list[float]) -> float:
        return math.exp(sum(math.log(value) for value in values) / len(values))

    return Interval(*(mean([getattr(i, end) for i in intervals]) for end in ("value", "low", "high")))
