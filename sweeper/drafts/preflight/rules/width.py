"""Does the draft fit the target's hidden size, and can it be built at all?"""

from __future__ import annotations

from collections.abc import Iterator

from sweeper.drafts.preflight.case import Case, Problem, Rule
from sweeper.drafts.preflight.config_json import layer_count, number
from sweeper.drafts.preflight.findings import Level
from sweeper.drafts.preflight.formats import EAGLE3_KINDS, Format
from sweeper.drafts.preflight.layouts import aux_count, target_width
from sweeper.drafts.preflight.rules.tensors import tensor


def hidden_size(case: Case) -> Iterator[Problem]:
    """What the target hands over must be as wide as the draft reads."""
    if case.target is None or "hidden_size" not in case.target.text:
        return
    have, own = number(case.target.text, "hidden_size"), number(case.draft.text, "hidden_size")
    eagle3 = case.format in EAGLE3_KINDS
    reads = target_width(case.draft.text) if eagle3 else own
    if reads != have:
        yield Problem(
            f"config.json: {'target_hidden_size' if reads != own else 'hidden_size'}",
            f"the draft reads hidden states {reads} wide, the target's are {have}: it was made for another model",
            "take a draft that was trained for this target",
        )


def own_embedding(case: Case) -> Iterator[Problem]:
    """A head of another width than its target cannot share its embedding."""
    config = case.draft.text
    if target_width(config) == number(config, "hidden_size") or not case.draft.tensors:
        return
    if tensor(case, "embed_tokens.weight") is None:
        yield Problem(
            "weights: embed_tokens.weight",
            f"hidden_size {number(config, 'hidden_size')} is not target_hidden_size {target_width(config)}, so "
            "the draft needs an embedding of its own, and has none",
            "export the checkpoint with its embed_tokens",
        )


def fc_skipped(case: Case) -> Iterator[Problem]:
    """SGLang applies ``fc`` only where what it gets has another width than an embedding."""
    config = case.draft.text
    if aux_count(config) * target_width(config) == number(config, "hidden_size"):
        yield Problem(
            "config.json: num_aux_hidden_states",
            "the hidden states it gets are as wide as an embedding, so SGLang skips fc",
            "such a draft works only if it was trained without fc",
        )


def vocabulary_key(case: Case) -> Iterator[Problem]:
    if "draft_vocab_size" not in case.draft.text:
        yield Problem(
            "config.json: draft_vocab_size",
            "the key is missing; SGLang stops with an AttributeError",
            "add it: the number of rows of lm_head.weight, or null for a draft that shares the target's head",
        )


def depth(case: Case) -> Iterator[Problem]:
    layers = layer_count(case.draft.text, 1)
    several = case.serving.since("0.5.12") and case.format is Format.EAGLE3
    if layers != 1 and not several:
        why = "this kind of head" if case.format is Format.EAGLE3_MLA else f"SGLang {case.serving.version}"
        yield Problem(
            "config.json: num_hidden_layers",
            f"is {layers}; {why} has one layer only",
            "use SGLang 0.5.12 or newer" if case.format is Format.EAGLE3 else "set it to 1",
        )


WIDTH_RULES = (
    Rule(
        "hidden-size",
        (Level.ERROR,),
        "the draft reads hidden states as wide as the target's",
        hidden_size,
        EAGLE3_KINDS | {Format.EAGLE, Format.DFLASH},
    ),
    Rule(
        "embedding-missing",
        (Level.SILENT,),
        "a draft of another hidden size than its target brings an embedding",
        own_embedding,
        EAGLE3_KINDS,
    ),
    Rule(
        "fc-skipped",
        (Level.SILENT,),
        "what the draft gets is wider than an embedding",
        fc_skipped,
        EAGLE3_KINDS,
    ),
    Rule(
        "draft-vocab-key",
        (Level.ERROR,),
        "config.json has the key draft_vocab_size",
        vocabulary_key,
        frozenset({Format.EAGLE3}),
    ),
    Rule("layers", (Level.ERROR,), "the head has as many layers as the release can run", depth, EAGLE3_KINDS),
)
