"""What a trial came to, in the run directory before it is in the storage: nothing measured hangs on a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sweeper.records import TrialRecord
from sweeper.storage.stored_study import FORMAT
from sweeper.storage.stored_trial import Speedups, speedups_from, speedups_json


@dataclass(frozen=True)
class Entry:
    """One trial of one study; ``study`` is its identity, since names are used again."""

    study: str
    trial: int
    record: TrialRecord
    speedups: Mapping[str, tuple[float, float, float]]
    format: int = FORMAT

    @property
    def by_load(self) -> Speedups:
        return speedups_from(self.speedups)


_json: TypeAdapter[Entry] = TypeAdapter(Entry)


def entry_text(study: str, trial: int, record: TrialRecord, speedups: Speedups) -> str:
    """An entry as the text of its file."""
    return _json.dump_json(Entry(study, trial, record, speedups_json(speedups)), indent=1).decode()


def read_entry(path: Path, study: str, trial: int) -> Entry | None:
    """The entry of a trial of this very study; None where it left none that this release can read."""
    try:
        entry = _json.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return entry if (entry.study, entry.trial, entry.format) == (study, trial, FORMAT) else None
