"""Makes the report's row of a trial from what is stored of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from reports.rows import LoadRow, TrialRow
from sweeper.acceptance import conditional_acceptance, marginal_acceptance
from sweeper.analysis.verdict import confirmed_speedups, over_objective
from sweeper.breakeven import BreakEven, break_even, break_even_accept_length
from sweeper.records import Load, LoadPoint, OutputComparison, TrialRecord
from sweeper.runs.findings import Findings
from sweeper.server.failures import ADVICE
from sweeper.storage.stored_trial import SERVER, Speedups, config_of, label
from sweeper.trial.quality import lossy


class TrialReader:
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
        rows = [
            load_row(point, speedups, confirmed, baseline)
            for point in record.load_points
            if point.load in speedups and baseline.at(point.load.cold)
        ]
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
            hot_swap=str(record.hot_swap) if record.hot_swap else None,
            pins=list(record.pins),
            unequal=differences(record.engine, baseline.engine),
            command=list(record.command),
            server=str(trial.user_attrs.get(SERVER, "")),
            log=f"logs/{label(trial.number)}.log",
            started_at=record.started_at or None,
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
    shared = ours.keys() & baselines.keys() - {"max_total_num_tokens", "speculative_adaptive"}
    return [
        f"{name} is {ours[name]}, {baselines[name]} without speculation"
        for name in sorted(shared)
        if ours[name] != baselines[name]
    ]


def load_row(point: LoadPoint, speedups: Speedups, confirmed: Speedups, baseline: TrialRecord) -> LoadRow:
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
        histogram=list(point.histogram),
        marginal_acceptance=marginal_acceptance(point.histogram),
        conditional_acceptance=conditional_acceptance(point.histogram),
        step_time_ms=point.step_time_s * 1000,
        ttft_p50_ms=point.ttft_s.p50 * 1000,
        tpot_p50_ms=point.tpot_s.p50 * 1000,
        e2e_p90_ms=point.e2e_s.p90 * 1000,
        requests=point.requests,
        ended_by=point.ended_by,
        drift=point.drift,
        unstable=point.unstable,
        notes=list(point.notes),
    )
