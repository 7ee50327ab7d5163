"""Takes up what is known before a study's first launch, and keeps it with the study, so that it goes on unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sweeper.config import StudyConfig
from sweeper.errors import StudyChangedError, SweeperError
from sweeper.runs.directory import find_run, read_run
from sweeper.search.candidates import CandidateSampler
from sweeper.search.evidence import EvidenceReader
from sweeper.search.hints import NOTHING, Hints, from_earlier, from_map, hints_json
from sweeper.search.structural import StructuralSampler
from sweeper.speculation import NO_DRAFT, SpeculationConfig
from sweeper.storage.stored_study import StoredStudy

HINTS = "hints"


def inform(sampler: CandidateSampler, stored: StoredStudy, config: StudyConfig, runs: Path) -> list[str]:
    """Tell a sampler what is known beforehand; those that model nothing have no use for it.

    ``runs``: where runs that are called by name lie. Returns what a person should know about it.

    Raises:
        SweeperError: an earlier run or the map cannot be read, or is of another target.
        StudyChangedError: what the study holds of it was written by hand or another release.
    """
    if not isinstance(sampler, StructuralSampler):
        return []
    before = stored.get(HINTS)
    notes: list[str] = []
    if before is None:
        sampler.hints, notes = known_beforehand(config, sampler.configs, runs)
        stored.set(HINTS, hints_json.dump_python(sampler.hints, mode="json"))
    else:
        sampler.hints = _stored_hints(before)
    return notes


def _stored_hints(before: Any) -> Hints:
    try:
        return hints_json.validate_python(before)
    except ValidationError as error:
        raise StudyChangedError(
            f"the study's attribute {HINTS!r} cannot be read: {error.errors()[0]['msg']}; start a new study with --name"
        ) from None


def known_beforehand(
    config: StudyConfig, candidates: Sequence[SpeculationConfig], runs: Path
) -> tuple[Hints, list[str]]:
    """From ``search.warm_start`` and ``search.acceptance_map``, and what to know about these."""
    hints = NOTHING
    notes: list[str] = []
    for name in config.search.warm_start:
        hints += _from_run(name, config, runs)
    if config.search.acceptance_map:
        found, notes = _from_map(Path(config.search.acceptance_map), config, candidates)
        hints += found
    return hints, notes


def _from_run(name: str, config: StudyConfig, runs: Path) -> Hints:
    run = find_run(name, str(runs))
    if run.path.resolve() == (runs / config.study).resolve():
        raise SweeperError(
            f"search.warm_start: {name!r} is this study itself; it knows its own trials anyway"
        )
    earlier, study = read_run(run)
    if earlier.engine.model != config.engine.model:
        raise SweeperError(
            f"search.warm_start: run {name!r} is of another target ({earlier.engine.model}); accept lengths and step "
            "times do not carry over"
        )
    loads = config.objective_loads
    missing = [str(load) for load in loads if load not in earlier.workload.loads]
    if missing:
        raise SweeperError(
            f"search.warm_start: run {name!r} was not measured at {', '.join(missing)}, where this study is to win"
        )
    ours = {draft.path: own for own, draft in config.space.drafts.items()}
    drafts = {theirs: ours[d.path] for theirs, d in earlier.space.drafts.items() if d.path in ours}
    found = EvidenceReader(loads).read(study).outcomes
    return from_earlier(found, {**drafts, NO_DRAFT: NO_DRAFT})


def _from_map(
    path: Path, config: StudyConfig, candidates: Sequence[SpeculationConfig]
) -> tuple[Hints, list[str]]:
    """What a map says; nothing of drafts whose checkpoints are other ones now.

    Raises:
        SweeperError: it is none, or of another target.
    """
    from sweeper.drafts.acceptance_map import AcceptanceMap
    from sweeper.drafts.predictions import mismatches, other_checkpoints, other_target

    known = AcceptanceMap.load(path)
    if other_target(known, config):
        raise SweeperError(
            f"search.acceptance_map: {path} was made with another target ({known.facts.target}) than "
            f"{config.engine.model}"
        )
    changed = other_checkpoints(known, config)
    usable = [c for c in candidates if c.draft not in changed and known.covers(c)]
    return from_map(known, usable), mismatches(known, config)
