"""How far a study's numbers hold: what was not equal, not steady, not compared, or not measured."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from reports.preflight import finding_text
from reports.study_report import StudyReport
from reports.tables import short


@dataclass(frozen=True)
class Validity:
    """Sentences, by what they are about; empty lists where there is nothing to say."""

    outputs: list[str] = field(default_factory=list)
    unequal: list[str] = field(default_factory=list)
    unstable: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    preflight: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    swaps: list[str] = field(default_factory=list)


def validity(report: StudyReport) -> Validity:
    unstable, notes = [], []
    for base in report.baseline:
        if base.unstable:
            unstable.append(f"no speculation at {base.load}")
        notes += [f"no speculation at {base.load}: {note}" for note in base.notes]
    for trial in report.trials:
        for row in trial.loads:
            if row.unstable:
                drift = f": second half over first {short(row.drift)}" if row.drift else ""
                unstable.append(f"{trial.config} at {row.load}{drift}")
            notes += [f"{trial.config} at {row.load}: {note}" for note in row.notes]
    kinds = Counter(trial.failure_class for trial in report.trials if trial.failure_class)
    return Validity(
        outputs=_outputs(report),
        unequal=report.confounders,
        unstable=unstable,
        notes=notes,
        failures=[f"{kind}: {count} trial(s)" for kind, count in kinds.most_common()],
        skipped=[f"{count} config(s): {why}" for why, count in Counter(report.skipped.values()).items()],
        preflight=[finding_text(draft, f) for draft in report.preflight for f in draft.findings],
        notices=report.notices,
        swaps=[f"{trial.config} was {trial.hot_swap}" for trial in report.trials if trial.hot_swap],
    )


def _outputs(report: StudyReport) -> list[str]:
    lines = []
    floor = report.noise_floor
    if floor:
        lines.append(
            f"the plain server repeats {floor.identical} of {floor.compared} of its own outputs at temperature 0; "
            f"near ties are within {floor.near_tie:g} nats"
        )
    lines += [f"LOSSY {trial.config}: {reason}" for trial in report.trials for reason in trial.lossy]
    unknown = [t for t in report.trials if t.loads and t.outputs_equal is None]
    if unknown:
        lines.append(f"the outputs of {len(unknown)} trial(s) were not compared with the plain server's")
    return lines
