"""What is kept with an Optuna study beside its trials, and how it is read back."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.trial import FrozenTrial, TrialState

from sweeper import __version__
from sweeper.attributes import is_part, packed, unpacked
from sweeper.errors import StudyChangedError
from sweeper.records import (
    BaselineCheck,
    ConfirmationRound,
    TrialRecord,
    checks_json,
    rounds_json,
    trial_record_json,
)

FORMAT = 2
"""Raise it when attributes or records change so that an older study cannot be read or continued."""

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)
BASELINE = "baseline_record"
CHECK = "baseline check "
CONFIRMATION = "confirmation "
NOTICE = "notice "
MOST_NOTICES = 100
SKIPPED = "skipped"


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
    stored = unpacked(attributes, BASELINE)
    return trial_record_json.validate_python(stored) if stored else None


def checks_of(attributes: Mapping[str, Any]) -> tuple[BaselineCheck, ...]:
    """The checks of the baseline, in their order."""
    return checks_json.validate_python(_numbered(attributes, CHECK))


def rounds_of(attributes: Mapping[str, Any]) -> tuple[ConfirmationRound, ...]:
    """The rounds of confirmation, in their order."""
    return rounds_json.validate_python(_numbered(attributes, CONFIRMATION))


def notices_of(attributes: Mapping[str, Any]) -> tuple[str, ...]:
    """What a person was told of the cluster: servers of other hardware, nodes that spoiled trials."""
    return tuple(_numbered(attributes, NOTICE))


def skipped_of(attributes: Mapping[str, Any]) -> dict[str, str]:
    """Configs that are not launched, and why."""
    found: dict[str, str] = unpacked(attributes, SKIPPED, {})
    return found


def _numbered(attributes: Mapping[str, Any], prefix: str) -> list[Any]:
    names = [name for name in attributes if name.startswith(prefix) and not is_part(name)]
    return [
        unpacked(attributes, name) for name in sorted(names, key=lambda name: int(name.removeprefix(prefix)))
    ]


class StoredStudy:
    """Reads and writes what is kept with a study; only its driver writes."""

    def __init__(self, study: optuna.Study) -> None:
        self.study = study

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
        return checks_of(self.study.user_attrs)

    def add_check(self, check: BaselineCheck) -> None:
        self.set(f"{CHECK}{len(self.checks()) + 1}", checks_json.dump_python((check,), mode="json")[0])

    def rounds(self) -> tuple[ConfirmationRound, ...]:
        return rounds_of(self.study.user_attrs)

    def add_round(self, done: ConfirmationRound) -> None:
        self.set(f"{CONFIRMATION}{done.number}", rounds_json.dump_python((done,), mode="json")[0])

    def add_notice(self, text: str) -> None:
        """The first MOST_NOTICES are kept."""
        count = len(notices_of(self.study.user_attrs))
        if count < MOST_NOTICES:
            self.set(f"{NOTICE}{count + 1}", text)

    def set_baseline(self, record: TrialRecord) -> None:
        self.set(BASELINE, trial_record_json.dump_python(record, mode="json"))

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
