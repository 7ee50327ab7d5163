"""Predicted accept lengths beside a study's candidates, and whether the map was made for this study."""

from __future__ import annotations

from pathlib import Path

from sweeper.check import CheckedCandidate, CheckReport
from sweeper.config import StudyConfig
from sweeper.drafts.acceptance_map import AcceptanceMap
from sweeper.drafts.fingerprint import CheckpointMissingError, checkpoint_fingerprint, local_checkpoint


def with_predictions(report: CheckReport, study: StudyConfig, path: Path) -> CheckReport:
    """The report with what the map at ``path`` predicts, and with warnings where it was made for something else.

    Raises:
        MapError: there is no such map.
    """
    found = AcceptanceMap.load(path)
    candidates = [_predicted(candidate, found) for candidate in report.candidates]
    missing = sum(c.predicted_accept_length is None for c in candidates)
    warnings = mismatches(found, study)
    if missing:
        warnings.append(f"{path} says nothing of {missing} of {len(candidates)} configs")
    return report.model_copy(update={"candidates": candidates, "warnings": [*report.warnings, *warnings]})


def _predicted(candidate: CheckedCandidate, found: AcceptanceMap) -> CheckedCandidate:
    config = candidate.effective
    if not found.covers(config):
        return candidate
    estimate = found.estimate(config.draft, config.num_steps, config.topk, config.num_draft_tokens)
    return candidate.model_copy(update={"predicted_accept_length": estimate.interval})


def mismatches(found: AcceptanceMap, study: StudyConfig) -> list[str]:
    """In what a map's target, drafts and workload differ from a study's; what is not here is not compared."""
    facts = found.facts
    said = []
    if other_target(found, study):
        said.append(
            f"the acceptance map was made with another target ({facts.target}) than {study.engine.model}"
        )
    said += [
        f"the acceptance map was made with another checkpoint of draft {name!r}"
        for name in other_checkpoints(found, study)
    ]
    if Path(study.workload.prompts).name != Path(facts.workload).name:
        said.append(f"the acceptance map was made on other prompts: {facts.workload}")
    if study.workload.temperature > 0:
        said.append("the acceptance map is for greedy decoding; at this temperature accept lengths differ")
    return said


def other_target(found: AcceptanceMap, study: StudyConfig) -> bool:
    """Whether the study's target is here and is not the map's."""
    return _differs(study.engine.model, found.facts.target_fingerprint)


def other_checkpoints(found: AcceptanceMap, study: StudyConfig) -> list[str]:
    """The study's drafts that are here and are not those that the map knows by these names."""
    known = found.facts.drafts
    return [
        name
        for name, draft in study.space.drafts.items()
        if name in known and _differs(draft.path, known[name])
    ]


def _differs(checkpoint: str, fingerprint: str) -> bool:
    try:
        return checkpoint_fingerprint(local_checkpoint(checkpoint)) != fingerprint
    except CheckpointMissingError:
        return False
