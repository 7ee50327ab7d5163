"""Do draft and target speak of the same tokens?"""

from __future__ import annotations

from collections.abc import Iterator

from sweeper.drafts.preflight.case import Case, Problem, Rule
from sweeper.drafts.preflight.config_json import ids_of, number
from sweeper.drafts.preflight.findings import Level
from sweeper.drafts.preflight.formats import EAGLE3_KINDS, Format
from sweeper.drafts.preflight.tokenizers import difference

PADDING = 1024
PADDING_SHARE = 0.1
"""Vocabularies are padded to what GPUs like (Qwen2: 151936 and 152064 rows of one tokenizer); more is another one."""

_ANOTHER = "take a draft that was trained for this target"


def same_but_padding(one: int, other: int) -> bool:
    return abs(one - other) <= min(PADDING, PADDING_SHARE * max(one, other))


def _sizes(case: Case) -> tuple[int, int] | None:
    """The vocabulary sizes of draft and target; None where one is not given."""
    if case.target is None or not {"vocab_size"} <= case.target.text.keys() & case.draft.text.keys():
        return None
    return number(case.draft.text, "vocab_size"), number(case.target.text, "vocab_size")


def _must_be_equal(case: Case) -> bool:
    return case.algorithm == "STANDALONE" and case.serving.since("0.5.15")


def size(case: Case) -> Iterator[Problem]:
    sizes = _sizes(case)
    if sizes is None or sizes[0] == sizes[1]:
        return
    own, target = sizes
    says = f"is {own}, the target's {target}"
    if _must_be_equal(case):
        yield Problem(
            "config.json: vocab_size",
            f"{says}: since 0.5.15 SGLang wants them equal for STANDALONE, padding included",
            _ANOTHER
            if not same_but_padding(own, target)
            else "pad or cut the draft's embedding and head to the target's size",
            Level.ERROR,
        )
    elif not same_but_padding(own, target):
        yield Problem("config.json: vocab_size", f"{says}: another vocabulary, not another padding", _ANOTHER)


def tokenizer(case: Case) -> Iterator[Problem]:
    if case.target is None or case.inside_target:
        return
    differs = difference(case.draft, case.target)
    if differs:
        refused = _must_be_equal(case)
        yield Problem(
            differs.file,
            f"is not the target's: {differs.how}" + ("; SGLang refuses the pair" if refused else ""),
            _ANOTHER,
            Level.ERROR if refused else None,
        )


def special_tokens(case: Case) -> Iterator[Problem]:
    if case.target is None or case.inside_target:
        return
    generation = case.target.json_file("generation_config.json")
    for key in ("bos_token_id", "eos_token_id"):
        own = ids_of(case.draft.text, key)
        theirs = ids_of(case.target.text, key) | ids_of(generation, key)
        if own and theirs and not own <= theirs:
            yield Problem(
                f"config.json: {key}",
                f"is {sorted(own)}, the target's {sorted(theirs)}",
                "check that the draft was trained with this target's tokenizer and chat template",
            )


_SHARING = EAGLE3_KINDS | {Format.EAGLE, Format.MODEL, Format.DFLASH, Format.DSPARK}

VOCABULARY_RULES = (
    Rule(
        "vocabulary",
        (Level.SILENT, Level.ERROR),
        "the vocabulary sizes are equal up to padding; for STANDALONE since 0.5.15 exactly",
        size,
        _SHARING,
    ),
    Rule(
        "tokenizer",
        (Level.SILENT, Level.ERROR),
        "a tokenizer that the draft brings gives every token the target's id",
        tokenizer,
        _SHARING,
    ),
    Rule(
        "special-tokens",
        (Level.WARNING,),
        "begin and end of sequence have the target's ids",
        special_tokens,
        _SHARING,
    ),
)
