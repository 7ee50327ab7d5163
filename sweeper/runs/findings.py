"""What a study has found so far: as stored with it, or computed again from the raw requests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import optuna
from optuna.trial import FrozenTrial

from sweeper.breakeven import speedup_at
from sweeper.errors import SweeperError
from sweeper.load.repeatability import repeatability
from sweeper.load.statistics import Expectation, FailedLoadError, LoadData, load_point
from sweeper.records import (
    BaselineCheck,
    ConfirmationRound,
    Load,
    LoadPoint,
    Repeatability,
    RequestRecord,
    TrialRecord,
    by_load,
)
from sweeper.runs.request_table import read_requests
from sweeper.runs.directory import RunDirectory
from sweeper.search.candidates import REQUEUE, is_proposed
from sweeper.storage.stored_study import baseline_record_of, checks_of, rounds_of
from sweeper.storage.stored_trial import Speedups, label, record_of, speedups_json, speedups_of


@dataclass(frozen=True)
class Findings:
    """The records and speedups of a study. ``trials`` and ``speedups`` are by trial number."""

    trials: Sequence[FrozenTrial]
    baseline: TrialRecord | None
    records: Mapping[int, TrialRecord]
    speedups: Mapping[int, Speedups]
    checks: Sequence[BaselineCheck] = ()
    rounds: Sequence[ConfirmationRound] = ()


def stored_findings(study: optuna.Study) -> Findings:
    """What the storage holds; works while the sweep runs, and before its first trial ended."""
    attributes = study.user_attrs
    trials = [
        trial
        for trial in study.get_trials(deepcopy=False)
        if not trial.user_attrs.get(REQUEUE) and is_proposed(trial)
    ]
    return Findings(
        trials=trials,
        baseline=baseline_record_of(attributes),
        records={t.number: record for t in trials if (record := record_of(t)) is not None},
        speedups={t.number: speedups_of(t) for t in trials},
        checks=checks_of(attributes),
        rounds=rounds_of(attributes),
    )


@dataclass(frozen=True)
class Recomputed:
    """Findings from raw requests, and by how much their numbers differ from the stored ones at most, relatively."""

    findings: Findings
    numbers: int
    largest_difference: float


def recomputed_findings(study: optuna.Study, run: RunDirectory, tolerance: float) -> Recomputed:
    """Every load point and every speedup of baseline, trials and confirmation, from the tables in ``requests/``.

    ``tolerance`` is the study's ``measurement.drift_tolerance``.

    Raises:
        SweeperError: a table is missing, or does not give the load point that is stored.
    """
    stored = stored_findings(study)
    baseline = run.read_baseline()
    if baseline is None or stored.baseline is None:
        raise SweeperError(f"run {run.path}: has no baseline to compute speedups from")
    records, speedups = {}, {}
    differences = []
    repeats = repeatability(by_load(stored.baseline.loads, baseline.requests))

    def again(record: TrialRecord, requests: Sequence[RequestRecord]) -> TrialRecord:
        # Whether prompts came from the cache was judged when they were measured.
        expected = Expectation.of(record.effective, True, tolerance, repeats)
        return replace(record, load_points=tuple(_points(record, requests, expected)))

    plain = again(stored.baseline, baseline.requests)
    differences += _differences(plain, stored.baseline)
    for number, record in stored.records.items():
        if not record.load_points:
            records[number], speedups[number] = record, stored.speedups[number]
            continue
        requests = read_requests(run.requests(label(number)))
        records[number] = again(record, requests)
        speedups[number] = {
            load: speedup_at(load, requests, baseline.requests, repeats) for load in stored.speedups[number]
        }
        differences += _differences(records[number], record)
        differences += [
            abs(speedups[number][load].value / before.value - 1)
            for load, before in stored.speedups[number].items()
        ]
    rounds = [_recomputed_round(run, done, repeats) for done in stored.rounds]
    for now, before in zip(rounds, stored.rounds, strict=True):
        differences += [
            abs(values[0] / before.speedups[trial][name][0] - 1)
            for trial, by_load in now.speedups.items()
            for name, values in by_load.items()
        ]
    findings = replace(stored, baseline=plain, records=records, speedups=speedups, rounds=rounds)
    return Recomputed(findings, len(differences), max(differences, default=0.0))


def _recomputed_round(
    run: RunDirectory, done: ConfirmationRound, repeats: Repeatability
) -> ConfirmationRound:
    """The round's speedups again, from its own requests."""
    plain = read_requests(run.requests(f"confirm-{done.number}-baseline"))
    computed = {}
    for trial, before in done.speedups.items():
        ours = read_requests(run.requests(f"confirm-{done.number}-{label(trial)}")) if before else ()
        loads = [Load.parse(name) for name in before]
        computed[trial] = speedups_json({load: speedup_at(load, ours, plain, repeats) for load in loads})
    return replace(done, speedups=computed)


def _points(
    record: TrialRecord, requests: Sequence[RequestRecord], expected: Expectation
) -> Iterator[LoadPoint]:
    for point in record.load_points:
        mine = [r for r in requests if r.load == str(point.load)]
        data = LoadData(point.load, mine, point.ended_by, point.warmup, point.sources)
        try:
            found = load_point(data, expected)
        except FailedLoadError as error:
            raise SweeperError(f"the stored requests at {point.load} give no load point: {error}") from None
        yield replace(found, notes=point.notes)


def _differences(now: TrialRecord, before: TrialRecord) -> list[float]:
    """Relative differences of the numbers that everything else follows from."""
    differences = []
    for new, old in zip(now.load_points, before.load_points, strict=True):
        for name in ("output_tok_s", "accept_length"):
            a, b = getattr(new, name), getattr(old, name)
            differences += [
                abs(math.log(getattr(a, end) / getattr(b, end))) for end in ("value", "low", "high")
            ]
        differences += [abs(new.step_time_s / old.step_time_s - 1), abs(new.ttft_s.p50 / old.ttft_s.p50 - 1)]
    return differences
