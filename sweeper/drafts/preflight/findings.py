"""What preflight finds, as data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from pydantic import TypeAdapter


class Level(str, Enum):
    """What a finding means for a launch."""

    ERROR = "error"
    """SGLang refuses the draft, or its server dies before it serves."""
    SILENT = "silent"
    """It loads and serves without complaint, and accepts little or nothing."""
    WARNING = "warning"
    """It may accept less than it could, or something could not be checked."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a draft for its target.

    ``rule`` is the id in docs/drafts.md, ``where`` the file and the key or tensor, ``do`` the next step.
    """

    level: Level
    rule: str
    what: str
    where: str
    do: str


@dataclass(frozen=True)
class DraftReport:
    """What is known of one draft under one algorithm before anything is launched.

    ``draft`` is its name in the study file, ``format`` what its files say it is, ``reads`` what the server will feed it
    of the target, in words; empty where it reads nothing. Drafts of one ``family`` are siblings, as a server sees them;
    empty where a running server cannot take others.
    """

    draft: str
    algorithm: str
    path: str
    format: str
    reads: str = ""
    findings: tuple[Finding, ...] = ()
    family: str = ""

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.level is Level.ERROR)

    @property
    def why_not(self) -> str:
        """Why this draft is not launched under this algorithm; empty where it may be."""
        return "; ".join(f"preflight {f.rule}: {f.what} ({f.where})" for f in self.errors)


draft_reports_json: TypeAdapter[tuple[DraftReport, ...]] = TypeAdapter(tuple[DraftReport, ...])
