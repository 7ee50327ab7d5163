"""Runs the rules over one draft."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sweeper.drafts.preflight.case import Case, Rule, Serving
from sweeper.drafts.preflight.checkpoint import BadConfigError, Checkpoint, open_checkpoint
from sweeper.drafts.preflight.checkpoint_files import UnreachableError
from sweeper.drafts.preflight.family import family
from sweeper.drafts.preflight.findings import DraftReport, Finding, Level
from sweeper.drafts.preflight.rules import RULES
from sweeper.drafts.preflight.rules.algorithm import KIND_RULES
from sweeper.drafts.preflight.safetensors_header import BrokenWeightsError

NOT_CHECKED, BAD_CONFIG, BROKEN = "not-checked", "config-unreadable", "weights-unreadable"


@dataclass(frozen=True)
class Pair:
    """A draft and the algorithm it is to run under; ``path`` is a directory or hub id."""

    draft: str
    algorithm: str
    path: str
    revision: str | None = None


def open_target(model: str, revision: str | None = None) -> Checkpoint | str:
    """The target's files, or in words why they cannot be compared with."""
    try:
        return open_checkpoint(model, revision)
    except (UnreachableError, BadConfigError) as error:
        return str(error)


def check_pair(pair: Pair, target: Checkpoint | str, serving: Serving) -> DraftReport:
    """Everything that the files of one draft tell; what cannot be looked at is a warning."""
    known = target if isinstance(target, Checkpoint) else None
    try:
        draft = known if known and pair.path == known.path else open_checkpoint(pair.path, pair.revision)
    except UnreachableError as error:
        return DraftReport(pair.draft, pair.algorithm, pair.path, "unknown", "", (_not_checked(error),))
    except BadConfigError as error:
        finding = Finding(
            Level.ERROR, BAD_CONFIG, str(error), "config.json", "export or copy the checkpoint again"
        )
        return DraftReport(pair.draft, pair.algorithm, pair.path, "unknown", "", (finding,))
    case = Case(pair.algorithm, draft, known, serving)
    findings = tuple(_all(case, target))
    return DraftReport(
        pair.draft,
        pair.algorithm,
        pair.path,
        case.format.value,
        str(case.wiring or ""),
        findings,
        _family(case),
    )


def _family(case: Case) -> str:
    """Empty where the rules have already said why nobody can tell."""
    try:
        return family(case.draft) if case.algorithm == "EAGLE3" else ""
    except (BrokenWeightsError, UnreachableError):
        return ""


def _all(case: Case, target: Checkpoint | str) -> Iterator[Finding]:
    wrong_kind = [f for rule in KIND_RULES for f in _findings(rule, case)]
    if wrong_kind:
        yield from wrong_kind
        return
    if isinstance(target, str):
        yield Finding(
            Level.WARNING,
            NOT_CHECKED,
            f"not compared with the target: {target}",
            "engine.model",
            "check it there",
        )
    try:
        case.draft.tensors  # noqa: B018 - read once, for all rules
    except BrokenWeightsError as error:
        yield Finding(Level.ERROR, BROKEN, str(error), "weights", "copy or download the checkpoint again")
        return
    except UnreachableError as error:
        yield _not_checked(error)
        return
    for rule in RULES:
        if rule not in KIND_RULES:
            yield from _findings(rule, case)


def _findings(rule: Rule, case: Case) -> Iterator[Finding]:
    if not rule.applies(case):
        return
    try:
        for problem in rule.check(case):
            level = problem.level or rule.levels[0]
            yield Finding(level, rule.id, problem.what, problem.where, problem.do)
    except UnreachableError as error:
        yield _not_checked(error, rule.id)


def _not_checked(error: UnreachableError, rule: str = "") -> Finding:
    what = f"{rule} was not checked" if rule else "not checked"
    return Finding(
        Level.WARNING,
        NOT_CHECKED,
        f"{what}: {error}",
        "the checkpoint's files",
        "run sweeper check where the checkpoint is, or with access to the hub",
    )
