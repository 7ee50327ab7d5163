"""Preflight of a whole study: every draft under every algorithm that it is to run under."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sweeper.config import StudyConfig
from sweeper.drafts.preflight.case import Serving
from sweeper.drafts.preflight.findings import DraftReport
from sweeper.drafts.preflight.run_rules import Pair, check_pair, open_target
from sweeper.errors import SweeperError
from sweeper.rules.algorithms import ALGORITHMS
from sweeper.server.setup import EngineSetup, own_flags
from sweeper.space import Candidate
from sweeper.speculation import NO_DRAFT, SpeculationConfig

_GRAPHS_OFF = ("disable-cuda-graph", "cuda-graph-backend-decode")


def preflight(
    study: StudyConfig, setup: EngineSetup, candidates: Sequence[Candidate]
) -> tuple[DraftReport, ...]:
    """Reports on all drafts of the candidates. Call it where the checkpoints are: where the servers will run."""
    configs = dict.fromkeys((c.effective.draft, c.effective.algorithm) for c in candidates)
    pairs = [pair for draft, algorithm in configs if (pair := _pair(study, draft, algorithm))]
    if not pairs:
        return ()
    revision = own_flags(study).get("revision")
    target = open_target(study.engine.model, None if revision is None else str(revision))
    serving = serving_of(study, setup)
    return tuple(check_pair(pair, target, serving) for pair in pairs)


def _pair(study: StudyConfig, draft: str, algorithm: str) -> Pair | None:
    """None where nothing is loaded (NGRAM), or what is loaded is no model (UNO's LoRA)."""
    revision = own_flags(study).get("speculative-draft-model-revision")
    if draft != NO_DRAFT:
        if algorithm == "UNO":
            return None
        return Pair(draft, algorithm, study.space.drafts[draft].path, str(revision) if revision else None)
    return Pair(draft, algorithm, study.engine.model) if ALGORITHMS[algorithm].draft_optional else None


def serving_of(study: StudyConfig, setup: EngineSetup) -> Serving:
    """What of the server's settings a draft must fit, from the study and its pins."""
    flags: Mapping[str, object] = {**own_flags(study), **{pin.flag: pin.value for pin in setup.pins}}

    def text(name: str) -> str | None:
        return str(flags[name]) if name in flags else None

    length = flags.get("context-length")
    override = study.engine.env.get("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN", "")
    longest = max((high for _, high in study.workload.input_lengths), default=0)
    return Serving(
        version=setup.version,
        dtype=text("dtype") or "auto",
        quantization=text("quantization"),
        draft_quantization=text("speculative-draft-model-quantization"),
        context_length=length if isinstance(length, int) else None,
        longer_context=override.lower() in ("1", "true", "yes", "y"),
        longest_request=longest + study.workload.max_new_tokens if longest else None,
        graphs=study.engine.device != "cpu" and not any(flags.get(name) for name in _GRAPHS_OFF),
    )


def failing(
    reports: Iterable[DraftReport], configs: Iterable[SpeculationConfig]
) -> dict[SpeculationConfig, str]:
    """The configs that need not be launched, and why: their draft has errors under their algorithm."""
    why_not = {(r.draft, r.algorithm): r.why_not for r in reports if r.errors}
    return {c: why_not[c.draft, c.algorithm] for c in configs if (c.draft, c.algorithm) in why_not}


def require_one_left(reports: Sequence[DraftReport], candidates: Sequence[Candidate]) -> None:
    """Raises SweeperError where no candidate has a draft that could be launched."""
    configs = [c.effective for c in candidates]
    skipped = failing(reports, configs)
    if len(skipped) < len(configs):
        return
    first = next(report for report in reports if report.errors)
    finding = first.errors[0]
    raise SweeperError(
        f"space.drafts: preflight finds errors in every draft, nothing is left to launch; the first: {first.draft} "
        f"under {first.algorithm}: {finding.what} ({first.path}, {finding.where}); {finding.do}. "
        "`sweeper check` lists all; --no-preflight launches them all the same"
    )
