"""What a server printed, as it may leave its node: without secrets, and without anything that a terminal obeys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sweeper.printable import one_line, printable
from sweeper.records import RequestRecord, TrialRecord
from sweeper.secrets import Redactor, secrets_of

HEAD, TAIL = 1_000_000, 4_000_000
"""Bytes of a log that are looked at; what lies between is left out."""

TEXTS = ("failure", "overrides", "warnings", "command", "unpinned", "engine", "pruned", "simulated")
"""Fields of a TrialRecord that come from outside, or may quote what does."""


class Cleaner:
    """Cleans the texts of one launch: of the secrets in its environment and of its API key."""

    def __init__(self, environment: Mapping[str, str], api_key: str = "") -> None:
        self._redact = Redactor([*secrets_of(environment), api_key])

    def __call__(self, text: str) -> str:
        return self._redact(printable(text))

    def record(self, record: TrialRecord) -> TrialRecord:
        """A record without secrets; configs and numbers stay as they are."""
        return replace(record, **{name: self._redact.data(getattr(record, name)) for name in TEXTS})

    def request(self, request: RequestRecord) -> RequestRecord:
        return replace(request, error=self(request.error)) if request.error else request


def last_words(errors: str, environment: Mapping[str, str], api_key: str = "") -> str:
    """The last line that a process of that environment complained with."""
    lines = Cleaner(environment, api_key)(errors).strip().splitlines()
    return one_line(lines[-1], 500) if lines else "no output"


def cleaned_log(path: Path, clean: Cleaner) -> str:
    """The clean text of a log, which from now on is all that its file holds."""
    text = clean(read_log(path))
    if path.exists():
        try:
            path.write_text(text, "utf-8")
        except OSError:  # the disk is full, but has always room for nothing
            path.unlink(missing_ok=True)
    return text


def read_log(path: Path, start: int = 0) -> str:
    """A log from byte ``start`` on, or nothing where there is none; of an endless one its head and its tail."""
    try:
        with path.open("rb") as file:
            file.seek(start)
            content = file.read(HEAD)
            size = path.stat().st_size - start
            if size > HEAD + TAIL:
                file.seek(start + size - TAIL)
                content += f"\n... {size - HEAD - TAIL:,} bytes are left out here ...\n".encode()
            content += file.read()
    except FileNotFoundError:
        return ""
    return content.decode("utf-8", "replace")
