"""What is kept with an Optuna study beside its trials, and how it is read back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import optuna
from optuna.trial import FrozenTrial, TrialState
from pydantic import TypeAdapter, ValidationError

from sweeper import __version__
from sweeper.drafts.preflight.findings import DraftReport, draft_reports_json
from sweeper.errors import StudyChangedError
from sweeper.records import (
    BaselineCheck,
    ConfirmationRound,
    Load,
    TrialRecord,
    checks_json,
    rounds_json,
    trial_record_json,
)
from sweeper.storage.attributes import packed, unpacked

T = TypeVar("T")

FORMAT = 2
"""Raise it when attributes or records change so that an older study cannot be read or continued."""

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
BASELINE = "baseline_record"
CHECK = "baseline check "
CONFIRMATION = "confirmation "
NOTICE = "notice "
MOST_NOTICES = 100
SKIPPED = "skipped"
PROMPT_NOTES = "prompt_notes"
OBJECTIVE_LOADS = "objective_loads"
PREFLIGHT = "preflight"


def check_format(study: optuna.Study) -> None:
    """Raises StudyChangedError for a study that another format's sweeper has begun."""
    attributes = study.user_attrs
    written = attributes.get("format", 1)
    if attributes and written != FORMAT:
        by = attributes.get("sweeper", "an older version")
        raise StudyChangedError(
            f"study {study.study_name!r} was written by sweeper {by} in format {written}; this is {__version__}, which "
            f"reads format {FORMAT}. Go on with the version that wrote it, or start a new study with --name"
        )


def baseline_record_of(attributes: Mapping[str, Any]) -> TrialRecord | None:
    """The baseline's record, None while there is none."""
    return _read(BASELINE, _maybe_record, lambda: unpacked(attributes, BASELINE))


def checks_of(attributes: Mapping[str, Any]) -> tuple[BaselineCheck, ...]:
    """The checks of the baseline, in their order."""
    return _read(CHECK, checks_json, lambda: _numbered(attributes, CHECK))


def rounds_of(attributes: Mapping[str, Any]) -> tuple[ConfirmationRound, ...]:
    """The rounds of confirmation, in their order."""
    return _read(CONFIRMATION, rounds_json, lambda: _numbered(attributes, CONFIRMATION))


def notices_of(attributes: Mapping[str, Any]) -> list[str]:
    """What a person was told of the cluster: servers of other hardware, nodes that spoiled trials."""
    return _read(NOTICE, _texts, lambda: _numbered(attributes, NOTICE))


def prompt_notes_of(attributes: Mapping[str, Any]) -> list[str]:
    """How the prompts' texts came about."""
    return _read(PROMPT_NOTES, _texts, lambda: unpacked(attributes, PROMPT_NOTES, []))


def objective_loads_of(attributes: Mapping[str, Any]) -> list[Load]:
    """What the study's value speaks of; empty before its baseline was measured."""
    names = _read(OBJECTIVE_LOADS, _texts, lambda: unpacked(attributes, OBJECTIVE_LOADS, []))
    try:
        return [Load.parse(name) for name in names]
    except ValueError:
        raise StudyChangedError(
            f"the study's attribute {OBJECTIVE_LOADS!r} names no loads: {names}"
        ) from None


def skipped_of(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Configs that are not launched, and why."""
    return _read(SKIPPED, _reasons, lambda: unpacked(attributes, SKIPPED, {}))


def preflight_of(attributes: Mapping[str, Any]) -> tuple[DraftReport, ...]:
    """What the drafts' files told when the study was begun, or continued last."""
    return _read(PREFLIGHT, draft_reports_json, lambda: unpacked(attributes, PREFLIGHT, []))


def _numbered(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    """What is kept under ``prefix`` and a number; attributes of other people's names are none of ours."""
    numbers = [name.removeprefix(prefix) for name in attributes if name.startswith(prefix)]
    return [
        unpacked(attributes, f"{prefix}{number}") for number in sorted(map(int, filter(str.isdigit, numbers)))
    ]


_maybe_record: TypeAdapter[TrialRecord | None] = TypeAdapter(TrialRecord | None)
_texts: TypeAdapter[list[str]] = TypeAdapter(list[str])
_reasons: TypeAdapter[dict[str, str]] = TypeAdapter(dict[str, str])


def _read(name: str, kind: TypeAdapter[T], stored: Callable[[], Any]) -> T:
    """An attribute as what it should be.

    Raises:
        StudyChangedError: it is something else, or a part of it is missing.
    """
    try:
        return kind.validate_python(stored())
    except ValidationError as error:
        wrong = error.errors()[0]
        why = f"{wrong['msg']} ({'.'.join(map(str, wrong['loc']))})"
    except (KeyError, ValueError, TypeError) as error:  # parts are missing, or hold something else
        why = f"{type(error).__name__} {error}"
    raise StudyChangedError(
        f"the study's attribute {name.strip()!r} cannot be read: {why}. It was changed by hand or by another release; "
        "put it right, or start a new study with --name"
    )


class StoredStudy:
    """Reads and writes what is kept with a study; only its driver writes."""

    def __init__(self, study: optuna.Study) -> None:
        self.study = study
        self._checks: tuple[BaselineCheck, ...] | None = None

    def trials(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False)

    def set(self, name: str, value: Any) -> None:
        for key, part in packed(name, value):
            self.study.set_user_attr(key, part)

    def get(self, name: str) -> Any:
        return unpacked(self.study.user_attrs, name)

    @property
    def identity(self) -> str:
        """Tells this study from an earlier one of the same name."""
        return str(self.get("identity"))

    def checks(self) -> tuple[BaselineCheck, ...]:
        if self._checks is None:
            self._checks = checks_of(self.study.user_attrs)
        return self._checks

    def add_check(self, check: BaselineCheck) -> None:
        checks = (*self.checks(), check)
        self.set(f"{CHECK}{len(checks)}", checks_json.dump_python((check,), mode="json")[0])
        self._checks = checks

    def rounds(self) -> tuple[ConfirmationRound, ...]:
        return rounds_of(self.study.user_attrs)

    def add_round(self, done: ConfirmationRound) -> None:
        self.set(f"{CONFIRMATION}{done.number}", rounds_json.dump_python((done,), mode="json")[0])

    def add_notice(self, text: str) -> None:
        """Each once; the first MOST_NOTICES are kept."""
        there = notices_of(self.study.user_attrs)
        if text not in there and len(there) < MOST_NOTICES:
            self.set(f"{NOTICE}{len(there) + 1}", text)

    def set_baseline(self, record: TrialRecord) -> None:
        self.set(BASELINE, trial_record_json.dump_python(record, mode="json"))

    def set_preflight(self, reports: Sequence[DraftReport]) -> None:
        self.set(PREFLIGHT, draft_reports_json.dump_python(tuple(reports), mode="json"))

    def finished(self) -> int:
        """Trials with a result; they and the rounds of confirmation are what a check of the baseline vouches for."""
        return sum(trial.state in FINISHED for trial in self.trials()) + len(self.rounds())

    def checked(self) -> bool:
        """Whether the baseline was checked after the last result."""
        return bool(self.get("checked_after") == self.finished())

    def set_checked(self) -> None:
        self.set("checked_after", self.finished())

    def begin(self, wanted: Mapping[str, Any]) -> None:
        """Begin the study, or continue it: trials compare only under equal settings, those of its first run.

        Raises:
            StudyChangedError: it was measured under other settings, or written by another release.
        """
        check_format(self.study)
        settings = json.loads(json.dumps(wanted))
        before = self.get("settings")
        if before is None:
            self.set("format", FORMAT)
            self.set("sweeper", __version__)
            self.set("identity", str(uuid.uuid4()))
            self.set("settings", settings)  # last: it makes the others valid
        elif before != settings:
            changed = sorted(k for k in before.keys() | settings.keys() if before.get(k) != settings.get(k))
            raise StudyChangedError(
                f"study {self.study.study_name!r} was measured with other settings ({', '.join(changed)} changed); "
                "give the new one a name of its own with --name, or undo the change"
            )
