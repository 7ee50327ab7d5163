"""Is it a draft of the kind that the algorithm runs? Where it is not, no other rule is asked."""

from __future__ import annotations

from collections.abc import Iterator

from sweeper.drafts.preflight.case import Case, Problem, Rule
from sweeper.drafts.preflight.findings import Level
from sweeper.drafts.preflight.formats import EAGLE3_KINDS, LOADS_SILENTLY, TAKEN_BY, Format

_CONVERSION = (
    "convert it: SGLang's keys are architectures [LlamaForCausalLMEagle3], draft_vocab_size, and the layer ids in "
    "eagle_config.eagle_aux_hidden_state_layer_ids (speculators keeps the decoder's keys under "
    "transformer_layer_config and counts ids as inputs of layers: subtract 1 for most targets); tensors: layers.0.* "
    "is read as it is, d2t holds differences in both"
)


def no_architecture(case: Case) -> Iterator[Problem]:
    if not case.draft.architecture and case.format is not Format.SPECULATORS:
        yield Problem(
            "config.json: architectures",
            "names no architecture, so SGLang cannot tell what model it is",
            "set architectures, e.g. [LlamaForCausalLMEagle3] for a SpecForge EAGLE3 head",
        )


def speculators(case: Case) -> Iterator[Problem]:
    if case.format is Format.SPECULATORS:
        yield Problem(
            "config.json: speculators_model_type",
            "is in vLLM's speculators format, which SGLang does not read",
            _CONVERSION,
        )


def wrong_kind(case: Case) -> Iterator[Problem]:
    """The draft is of another kind than the algorithm runs."""
    name, algorithm = case.draft.architecture, case.algorithm
    taken = TAKEN_BY.get(algorithm)
    if taken is None or case.format in taken or not name or case.format is Format.SPECULATORS:
        return
    silent = (algorithm, case.format) in LOADS_SILENTLY
    consequence = "SGLang fails on it before it serves"
    if silent and case.format in EAGLE3_KINDS:
        consequence = "SGLang serves it without a warning, skips its fc, and accepts little or nothing"
    elif silent:
        consequence = (
            "SGLang serves it without a warning, with the target's embedding and head in place of its own"
        )
    yield Problem(
        "config.json: architectures",
        f"{name} ({case.format.value}) is no draft for {algorithm}: {consequence}",
        _advice(case),
        Level.SILENT if silent else Level.ERROR,
    )


def _advice(case: Case) -> str:
    fitting = [name for name, formats in TAKEN_BY.items() if case.format in formats]
    if fitting:
        return f"give it to {' or '.join(fitting)} instead"
    known = ", ".join(sorted(kind.value for kind in TAKEN_BY[case.algorithm]))
    return f"{case.algorithm} takes: {known}"


KIND_RULES = (
    Rule("architecture-missing", (Level.ERROR,), "config.json names an architecture", no_architecture),
    Rule(
        "speculators-format",
        (Level.ERROR,),
        "the checkpoint is in a format that SGLang reads, not in vLLM's speculators format",
        speculators,
    ),
    Rule(
        "algorithm",
        (Level.ERROR, Level.SILENT),
        "the draft is of the kind that the algorithm runs; under EAGLE an EAGLE3 head is served, but accepts little",
        wrong_kind,
    ),
)
