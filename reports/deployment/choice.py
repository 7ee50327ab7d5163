"""Which config is exported, for which load; and what is refused unless a person asks for it."""

from __future__ import annotations

from dataclasses import dataclass

from reports.study_report import StudyReport, TrialRow
from sweeper.analysis.verdict import Contender, winner
from sweeper.errors import SweeperError
from sweeper.records import Interval, Load


@dataclass(frozen=True)
class Wishes:
    """What a person asks for: a format, the ``load`` to be best at or a ``trial``, and a container image.

    ``allow_*`` lift a refusal each.
    """

    format: str = "sglang"
    image: str = ""
    load: str | None = None
    trial: int | None = None
    allow_unconfirmed: bool = False
    allow_lossy: bool = False


@dataclass(frozen=True)
class Choice:
    """What to deploy at ``loads``; ``trial`` is None where that is the server without speculation."""

    trial: TrialRow | None
    loads: list[str]


class RefusedExportError(SweeperError):
    """The config may be exported, but only if a person says so."""


def choose(report: StudyReport, wishes: Wishes, tie: float) -> Choice:
    """The trial to deploy: the one asked for, the best one at a load, or the study's winner.

    ``tie``: within this share of the best, the cheapest config wins.

    Raises:
        SweeperError: nothing was measured, or there is no such trial or load.
        RefusedExportError: it may change the target's output, or was not measured again.
    """
    if not report.baseline or not report.finished:
        raise SweeperError(f"study {report.study!r}: no trial is complete yet, so there is nothing to export")
    loads = [_load(report, wishes.load)] if wishes.load else list(report.objective_loads)
    if wishes.trial is not None:
        trial: TrialRow | None = _trial(report, wishes.trial)
    elif wishes.load:
        trial = _best_at(report, loads[0], tie, wishes.allow_lossy)
    else:
        trial = report.best
    if trial:
        _refuse(trial, loads, wishes)
    return Choice(trial, loads)


def _load(report: StudyReport, wanted: str) -> str:
    """The load's name; a bare number is a concurrency."""
    known = [base.load for base in report.baseline]
    name = f"c={wanted}" if wanted.isdigit() else wanted
    if name not in known:
        raise SweeperError(f"--load {wanted}: not measured in this study; measured: {', '.join(known)}")
    return name


def _trial(report: StudyReport, number: int) -> TrialRow:
    found = next((t for t in report.trials if t.number == number), None)
    if found is None or found.state not in ("COMPLETE", "PRUNED"):
        measured = [str(t.number) for t in report.trials if t.state in ("COMPLETE", "PRUNED")]
        what = "there is no such trial" if found is None else f"that trial is {found.state}"
        raise SweeperError(f"--trial {number}: {what}; measured: {', '.join(sorted(measured)) or 'none'}")
    return found


def _best_at(report: StudyReport, load: str, tie: float, allow_lossy: bool) -> TrialRow | None:
    """Where the load was confirmed for some configs, only they may win: the others' numbers are those of a search."""
    rows = {t.number: row for t in report.trials if (row := t.at(load)) and (allow_lossy or not t.lossy)}
    if any(row.confirmed for row in rows.values()):
        rows = {number: row for number, row in rows.items() if row.confirmed}
    contenders = [
        Contender(number, report.trial(number).config, row.best_known) for number, row in rows.items()
    ]
    best = winner(contenders, tie)
    return report.trial(best.number) if best else None


def _refuse(trial: TrialRow, loads: list[str], wishes: Wishes) -> None:
    if trial.lossy and not wishes.allow_lossy:
        raise RefusedExportError(
            f"trial {trial.number} ({trial.config}) may change the target's output ({trial.lossy[0]}); "
            "--allow-lossy exports it all the same"
        )
    if not wishes.allow_unconfirmed and not confirmed(trial, loads):
        raise RefusedExportError(
            f"trial {trial.number} ({trial.config}) was not measured again at "
            f"{'; '.join(Load.parse(load).in_words() for load in loads)}, and the best of many is too good by some "
            "luck; sweeper run with the same file confirms (confirmation.repeats > 0), --allow-unconfirmed exports "
            "it as it is"
        )


def confirmed(trial: TrialRow, loads: list[str]) -> bool:
    """Whether a trial was measured again at every one of the loads."""
    found: list[Interval | None] = [row.confirmed if (row := trial.at(load)) else None for load in loads]
    return all(found)
