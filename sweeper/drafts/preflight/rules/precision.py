"""Does the draft compute in the target's type, and unquantized?"""

from __future__ import annotations

from collections.abc import Iterator

from sweeper.drafts.preflight.case import Case, Problem, Rule
from sweeper.drafts.preflight.findings import Level
from sweeper.drafts.preflight.formats import EAGLE3_KINDS, Format


def dtype(case: Case) -> Iterator[Problem]:
    types = case.dtypes()
    if types is None or types[0] == types[1] or case.inside_target:
        return
    own = case.draft.text.get("dtype") or case.draft.text.get("torch_dtype") or "not given"
    yield Problem(
        "config.json: torch_dtype",
        f"is {own}, so the draft computes in {types[0]} and the target in {types[1]}: its matrices meet "
        "hidden states of another type",
        f"engine.extra_args.dtype: {types[1]}, or set the draft's torch_dtype to it",
    )


def inherited(case: Case) -> Iterator[Problem]:
    """``--quantization`` counts for the draft, too."""
    method = case.serving.quantization
    if not method or method == "unquant" or case.serving.draft_quantization or case.quantized:
        return
    free = "engine.extra_args.speculative-draft-model-quantization: unquant"
    yield Problem(
        "engine.extra_args.quantization",
        f"{method} counts for the draft, too, which then drafts with quantized weights; acceptance can fall to nothing",
        free
        if case.serving.since("0.5.9")
        else "serve a target that is quantized in its own files, without the flag",
    )


_READING = EAGLE3_KINDS | {Format.EAGLE, Format.DFLASH}

PRECISION_RULES = (
    Rule(
        "dtype",
        (Level.ERROR,),
        "draft and target compute in the same type under --dtype auto; float32 or none means float16",
        dtype,
        _READING,
    ),
    Rule(
        "quantization",
        (Level.WARNING,),
        "the draft does not inherit --quantization",
        inherited,
    ),
)
