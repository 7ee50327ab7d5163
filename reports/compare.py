"""Two runs of one study beside each other: another SGLang, GPU or draft; what changed beyond noise, worst first.

For every config and load that both measured: output tok/s, speedup over the run's own baseline, accept length; and the
baselines' tok/s. Repeats of the baseline within each run tell how much two launches of the same server differ.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from pydantic import Field

from reports.changes import Change, change_of, judged, order_of
from reports.study_report import BaselineRow, Row, StudyReport, TrialRow
from sweeper.errors import SweeperError

MEASURED = ("COMPLETE", "PRUNED")


class Conditions(Row):
    """What a run was measured under."""

    study: str
    created_at: str
    engine_version: str
    hardware: str
    model: str
    workload: str
    max_new_tokens: int
    temperature: float


class Comparison(Row):
    """``changes`` are regressions first, then what became better, then what did not change beyond noise."""

    before: Conditions
    after: Conditions
    differences: list[str] = Field(description="conditions that are not the same")
    launch_noise: float = Field(
        description="by how much two launches of the same server differ, as a standard deviation of the log; "
        "0 where no baseline was measured again"
    )
    changes: list[Change]
    broken: dict[str, str] = Field(description="configs that were measured before, and why not after")
    newly_lossy: dict[str, str] = Field(
        description="configs whose outputs were the target's, and why they may not be now"
    )
    only_before: list[str]
    only_after: list[str]
    winner_before: str
    winner_after: str

    def regressions(self, tolerance: float = 0.0) -> list[str]:
        """What got worse by more than ``tolerance`` (a share) and beyond noise, broke, or became lossy; in words."""
        worse = [c for c in self.changes if c.worse and c.ratio.value < 1 - tolerance]
        found = [f"{c.config} at {c.load}: {c.measure} {100 * (c.ratio.value - 1):+.1f} %" for c in worse]
        found += [f"{config}: {why}" for config, why in self.broken.items()]
        return found + [f"{config}: LOSSY now: {why}" for config, why in self.newly_lossy.items()]


def compare(before: StudyReport, after: StudyReport, any_workload: bool = False) -> Comparison:
    """Two runs' findings, config by config.

    Raises:
        SweeperError: nothing can be compared: other prompts (unless ``any_workload``), or no config in common.
    """
    _require_comparable(before, after, any_workload)
    pairs, only_before, only_after = _pairs(before, after)
    noise = launch_noise(before, after)
    same_hardware = before.hardware == after.hardware
    changes = list(_baseline_changes(before, after, noise, same_hardware))
    for old, new in pairs:
        changes += _changes(old, new, noise, same_hardware)
    measured = [(old, new) for old, new in pairs if old.state in MEASURED]
    return Comparison(
        before=_conditions(before),
        after=_conditions(after),
        differences=_differences(before, after),
        launch_noise=noise,
        changes=sorted(judged(changes), key=order_of),
        broken={str(old.config): _why(new) for old, new in measured if new.state == "FAILED"},
        newly_lossy={str(old.config): new.lossy[0] for old, new in measured if new.lossy and not old.lossy},
        only_before=[str(t.config) for t in only_before],
        only_after=[str(t.config) for t in only_after],
        winner_before=_winner(before),
        winner_after=_winner(after),
    )


def _require_comparable(before: StudyReport, after: StudyReport, any_workload: bool) -> None:
    for report in (before, after):
        if not report.baseline:
            raise SweeperError(
                f"study {report.study!r}: no baseline was measured yet, so nothing compares with it"
            )
    if before.workload != after.workload and not any_workload:
        raise SweeperError(
            f"the runs sent other prompts ({before.workload}, {after.workload}), so that neither rates nor accept "
            "lengths compare; --any-workload compares them all the same"
        )


def _key(trial: TrialRow, ignore_draft: bool) -> tuple[object, ...]:
    config = trial.config
    draft = "" if ignore_draft else config.draft
    return config.algorithm, draft, config.num_steps, config.topk, config.num_draft_tokens, config.options


def _pairs(
    before: StudyReport, after: StudyReport
) -> tuple[list[tuple[TrialRow, TrialRow]], list[TrialRow], list[TrialRow]]:
    """Trials of the same config. Where each run has one draft, of different names, those stand for each other."""
    drafts = [{t.config.draft for t in r.trials} for r in (before, after)]
    ignore = drafts[0] != drafts[1] and all(len(names) == 1 for names in drafts)
    old = {_key(t, ignore): t for t in reversed(before.trials)}
    new = {_key(t, ignore): t for t in reversed(after.trials)}
    pairs = [(trial, new[key]) for key, trial in old.items() if key in new]
    if not pairs and old and new:
        raise SweeperError(
            f"runs {before.study!r} and {after.study!r} have no config in common: "
            f"{', '.join(str(t.config) for t in before.trials[:3])}, ... and "
            f"{', '.join(str(t.config) for t in after.trials[:3])}, ..."
        )
    return pairs, [t for k, t in old.items() if k not in new], [t for k, t in new.items() if k not in old]


def launch_noise(*reports: StudyReport) -> float:
    """Standard deviation of the log of one launch's speed: a check's drift compares two of them, so half its square."""
    drifts = [math.log(c.drift.value) for r in reports for c in r.checks if c.drift]
    return math.sqrt(sum(d * d for d in drifts) / len(drifts) / 2) if drifts else 0.0


def _baseline_changes(
    before: StudyReport, after: StudyReport, noise: float, counts: bool
) -> Iterator[Change]:
    rows: dict[str, BaselineRow] = {row.load: row for row in after.baseline}
    for old in before.baseline:
        if old.load in rows:
            pair = (old.output_tok_s, rows[old.load].output_tok_s)
            yield change_of(("no speculation", old.load, "output tok/s"), pair, noise * math.sqrt(2), counts)


def _changes(old: TrialRow, new: TrialRow, noise: float, same_hardware: bool) -> Iterator[Change]:
    name = str(new.config) if old.config == new.config else f"{new.config} (was {old.config})"
    for row in old.loads:
        other = new.at(row.load)
        if other is None:
            continue
        rates = (row.output_tok_s, other.output_tok_s)
        yield change_of((name, row.load, "output tok/s"), rates, noise * math.sqrt(2), same_hardware)
        # A confirmed speedup holds its launches' scatter already; one of a search is a launch over another one.
        launches = sum(2 for r in (row, other) if not r.confirmed)
        speeds = (row.best_known, other.best_known)
        yield change_of((name, row.load, "speedup"), speeds, noise * math.sqrt(launches), True)
        lengths = (row.accept_length, other.accept_length)
        yield change_of((name, row.load, "accept length"), lengths, 0.0, True)


def _conditions(report: StudyReport) -> Conditions:
    return Conditions(**{name: getattr(report, name) for name in Conditions.model_fields})


def _differences(before: StudyReport, after: StudyReport) -> list[str]:
    names = [name for name in Conditions.model_fields if name not in ("study", "created_at")]
    return [
        f"{name.replace('_', ' ')}: {getattr(before, name)} -> {getattr(after, name)}"
        for name in names
        if getattr(before, name) != getattr(after, name)
    ]


def _why(trial: TrialRow) -> str:
    return f"{trial.failure_class or 'FAILED'}: {trial.failure or 'no reason recorded'}"


def _winner(report: StudyReport) -> str:
    return str(report.best.config) if report.best else "no speculation"
