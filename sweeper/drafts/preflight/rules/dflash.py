"""What only a DFLASH draft needs: a block, and a token that masks it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sweeper.drafts.preflight.case import Case, Problem, Rule
from sweeper.drafts.preflight.config_json import layer_count, number
from sweeper.drafts.preflight.findings import Level
from sweeper.drafts.preflight.formats import Format

DEFAULT_BLOCK = 16


def _key(case: Case, name: str) -> Any:
    """A key of ``dflash_config``, or else of the top level."""
    section = case.draft.text.get("dflash_config")
    nested = section.get(name) if isinstance(section, dict) else None
    return nested if nested is not None else case.draft.text.get(name)


def block(case: Case) -> Iterator[Problem]:
    if _key(case, "block_size") is None:
        yield Problem(
            "config.json: dflash_config.block_size",
            f"is missing, so SGLang drafts blocks of {DEFAULT_BLOCK}",
            "set it to what training used, or block_size in the study's grid",
        )


def mask_token(case: Case) -> Iterator[Problem]:
    token = _key(case, "mask_token_id")
    size = number(case.target.text, "vocab_size") if case.target and "vocab_size" in case.target.text else 0
    if type(token) is int and size and token >= size:
        yield Problem(
            "config.json: dflash_config.mask_token_id",
            f"{token} lies outside the target's vocabulary of {size}, which SGLang does not extend",
            "take a draft that was trained for this target",
        )


def trained_depth(case: Case) -> Iterator[Problem]:
    trained = _key(case, "num_target_layers")
    layers = layer_count(case.target.text) if case.target else 0
    if type(trained) is int and layers and trained != layers:
        yield Problem(
            "config.json: dflash_config.num_target_layers",
            f"the draft was made for a target of {trained} layers, this one has {layers}",
            "take a draft that was trained for this target",
        )


_DFLASH = frozenset({Format.DFLASH})

DFLASH_RULES = (
    Rule("dflash-block", (Level.WARNING,), "config.json gives the block size of training", block, _DFLASH),
    Rule("dflash-mask", (Level.ERROR,), "the mask token is in the target's vocabulary", mask_token, _DFLASH),
    Rule(
        "dflash-target",
        (Level.WARNING,),
        "the draft was made for a target of as many layers",
        trained_depth,
        _DFLASH,
    ),
)
