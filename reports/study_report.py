"""The report object: what a study found, as data. Every output (terminal, HTML, Markdown, tables, JSON,
exports) reads it."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timezone

import optuna
from pydantic import Field

from reports.choices import best_per_load, single_choice
from reports.rows import (
    BaselineRow,
    CheckRow,
    LoadChoice,
    LoadRow,
    Row,
    SingleChoice,
    SpanRow,
    StepTimeRow,
    TrialRow,
)
from reports.spans import spans
from reports.step_times import step_time_models, step_time_rows, with_analysis
from reports.trial_rows import TrialReader
from sweeper.analysis.verdict import Contender, winner
from sweeper.config import StudyConfig
from sweeper.drafts.preflight.findings import DraftReport
from sweeper.records import BaselineCheck, LoadPoint, OutputComparison, Pin, TrialRecord
from sweeper.runs.findings import Findings, stored_findings
from sweeper.search.prospect import Prospect, prospect_of
from sweeper.storage.stored_study import (
    notices_of,
    objective_loads_of,
    preflight_of,
    prompt_notes_of,
    skipped_of,
)
from sweeper.study.baseline_arm import noise_floor

__all__ = [
    "BaselineRow",
    "CheckRow",
    "LoadRow",
    "Row",
    "StudyReport",
    "TrialRow",
    "build_report",
]


class StudyReport(Row):
    """A study's findings. ``trials`` are ranked: winners first, failures last."""

    study: str
    model: str
    engine_version: str
    hardware: str
    nodes: int = Field(1, description="nodes that one server spans")
    workload: str = Field(description="fingerprint of the prompts")
    prompt_notes: list[str] = Field([], description="how the prompts' texts came about")
    drafts: dict[str, str] = Field({}, description="path or hub id by draft name")
    objective_loads: list[str]
    max_new_tokens: int
    temperature: float
    baseline: list[BaselineRow]
    baseline_command: list[str] = Field(
        [], description="what the server without speculation was started with"
    )
    checks: list[CheckRow] = Field([], description="the baseline re-checked before, after and between")
    noise_floor: OutputComparison | None = Field(
        None, description="the baseline's outputs against its own; null: it was measured only once"
    )
    trials: list[TrialRow]
    confirmation_rounds: int = 0
    skipped: dict[str, str] = Field(
        {}, description="configs left out since their launch could teach nothing, and why"
    )
    preflight: list[DraftReport] = Field(
        [], description="what the drafts' own files tell of how they are served; see docs/drafts.md"
    )
    pins: list[Pin] = Field(
        [], description="flags that the baseline and the trials share explicitly, and why"
    )
    confounders: list[str] = Field([], description="what could not be made equal on both arms")
    lossy_allowed: bool = False
    winner: int | None = Field(None, description="number of the trial to deploy; null: do not speculate")
    best_per_load: list[LoadChoice] = Field([], description="what to deploy for each load alone")
    single_best: SingleChoice | None = Field(None, description="the config of least regret over all loads")
    step_times: list[StepTimeRow] = Field([], description="what a verify round costs, by shape")
    timeline: list[SpanRow] = Field([], description="every launch whose times are known, in order")
    search: Prospect | None = Field(
        None,
        description="what more launches would gain, by the structural model; null: the search has not ended",
    )
    notices: list[str] = Field([], description="what the cluster did that a reader should know")
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
    objective = objective_loads_of(study.user_attrs) or list(config.objective_loads)
    reader = TrialReader(found, objective, noise_floor(found.checks))
    trials = [reader.row(trial) for trial in found.trials]
    plain = [_baseline_row(point) for point in baseline.load_points] if baseline else []
    models = step_time_models(trials)
    trials = [with_analysis(trial, models, plain) for trial in trials]
    tie = config.confirmation.tie
    best = _winner(trials, tie, allow_lossy)
    trials.sort(key=lambda trial: (trial.number != best, *_rank(trial)))
    able = [t for t in trials if t.state == "COMPLETE" and (allow_lossy or not t.lossy)]
    loads = list(dict.fromkeys([*(b.load for b in plain), *(r.load for t in able for r in t.loads)]))
    return StudyReport(
        study=config.study,
        model=config.engine.model,
        engine_version=baseline.server_version if baseline else "",
        hardware=baseline.hardware.key if baseline and baseline.hardware else "",
        nodes=baseline.hardware.nodes if baseline and baseline.hardware else 1,
        workload=baseline.workload if baseline else "",
        prompt_notes=prompt_notes_of(study.user_attrs),
        drafts={name: draft.path for name, draft in config.space.drafts.items()},
        objective_loads=[str(load) for load in objective],
        max_new_tokens=config.workload.max_new_tokens,
        temperature=config.workload.temperature,
        baseline=plain,
        baseline_command=list(baseline.command) if baseline else [],
        checks=[_check_row(check) for check in found.checks],
        noise_floor=reader.noise_floor,
        trials=trials,
        confirmation_rounds=len(found.rounds),
        skipped=skipped_of(study.user_attrs),
        preflight=list(preflight_of(study.user_attrs)),
        pins=list(baseline.pins) if baseline else [],
        confounders=_confounders(baseline, trials) if baseline else [],
        lossy_allowed=allow_lossy,
        winner=best,
        best_per_load=best_per_load(able, loads, tie),
        single_best=single_choice(able, loads, tie) if able else None,
        step_times=step_time_rows(models),
        timeline=spans(found, trials),
        search=prospect_of(study.user_attrs),
        notices=list(notices_of(study.user_attrs)),
        created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def _check_row(check: BaselineCheck) -> CheckRow:
    return CheckRow(
        when=check.when,
        server=check.server,
        drift=check.drift,
        beyond_tolerance=check.beyond_tolerance,
        failure=check.failure,
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


def _confounders(baseline: TrialRecord, trials: list[TrialRow]) -> list[str]:
    """What stayed open before the launches, and what differed in the running servers, with how often."""
    counts = Counter(difference for trial in trials for difference in trial.unequal)
    return [*baseline.unpinned, *(f"{what} ({count} trials)" for what, count in counts.items())]
