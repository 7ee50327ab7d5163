"""Does the draft see positions as in training, and as many as the target serves?"""

from __future__ import annotations

from collections.abc import Iterator

from sweeper.drafts.preflight.case import Case, Problem, Rule
from sweeper.drafts.preflight.config_json import context_of, number, rope_of
from sweeper.drafts.preflight.findings import Level
from sweeper.drafts.preflight.formats import EAGLE3_KINDS, Format

_HEADS = EAGLE3_KINDS | {Format.EAGLE}
_OVERRIDE = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"


def rope_theta(case: Case) -> Iterator[Problem]:
    if case.target is None or "hidden_size" not in case.target.text:
        return
    own, target = rope_of(case.draft.text), rope_of(case.target.text)
    if own.theta != target.theta:
        yield Problem(
            "config.json: rope_theta",
            f"is {own.theta:g}, the target's {target.theta:g}; heads are usually trained with the target's",
            "set it to what training used: with another one, attention reads wrong distances",
        )


def rope_scaling(case: Case) -> Iterator[Problem]:
    if case.target is None or "hidden_size" not in case.target.text:
        return
    own, target = rope_of(case.draft.text), rope_of(case.target.text)
    latent = number(case.target.text, "kv_lora_rank") and not number(case.draft.text, "kv_lora_rank")
    if (own.kind, own.scaling) != (target.kind, target.scaling) and not latent:
        yield Problem(
            "config.json: rope_scaling",
            f"the draft's positions are {own}; the target's are {target}",
            "set it to what training used (converters drop it); a mismatch shows at long inputs only",
        )


def context(case: Case) -> Iterator[Problem]:
    wanted, own = case.target_context, context_of(case.draft.text)
    if wanted is None or own >= wanted or case.inside_target:
        return
    if not case.serving.longer_context:
        yield Problem(
            "config.json: max_position_embeddings",
            f"the draft has {own} positions, the target is served with {wanted}: SGLang refuses that",
            f"engine.extra_args.context-length: {own} or less, or engine.env.{_OVERRIDE}: 1",
        )
        return
    longest = case.serving.longest_request
    if longest is None or longest > own:
        how = f"requests of up to {longest} tokens" if longest else "requests"
        yield Problem(
            "config.json: max_position_embeddings",
            f"the draft was made for {own} positions; {_OVERRIDE} serves it {how} beyond them",
            "measure long inputs in buckets of their own (workload.input_lengths)",
            Level.WARNING,
        )


POSITION_RULES = (
    Rule("rope-theta", (Level.WARNING,), "rope_theta is the target's", rope_theta, _HEADS),
    Rule("rope-scaling", (Level.WARNING,), "rope_scaling is the target's", rope_scaling, _HEADS),
    Rule(
        "context",
        (Level.ERROR, Level.WARNING),
        "the draft has as many positions as the target is served with",
        context,
    ),
)
