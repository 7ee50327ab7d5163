"""``d2t``: from the ids of a reduced draft vocabulary to the target's.

It holds *differences*: draft id i stands for target id i + d2t[i]. Target ids must ascend, since the reduced
vocabulary is the target's with ids left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from sweeper.drafts.preflight.case import Case, Problem, Rule
from sweeper.drafts.preflight.config_json import number
from sweeper.drafts.preflight.findings import Level
from sweeper.drafts.preflight.formats import EAGLE3_KINDS
from sweeper.drafts.preflight.layouts import draft_vocabulary
from sweeper.drafts.preflight.rules.tensors import tensor
from sweeper.drafts.preflight.rules.vocabulary import same_but_padding
from sweeper.drafts.preflight.safetensors_header import read_integers

_WHERE = "weights: d2t"
_SHORTEST = 4
"""Fewer entries than this say nothing about how they were made."""

_EXPORT = "export it again with differences: d2t[i] = target id - i"


def _values(case: Case) -> list[int] | None:
    """What d2t holds; None where there is none, or it is no integer tensor."""
    info = tensor(case, "d2t")
    try:
        return read_integers(case.draft.files, info) if info else None
    except ValueError:
        return None


def _vocabulary(case: Case) -> int:
    """The size of the target's vocabulary, or else the one that the draft was made for."""
    known = case.target is not None and "vocab_size" in case.target.text
    return number(case.target.text if case.target and known else case.draft.text, "vocab_size")


def _reduced(draft: int, target: int) -> bool:
    """Whether a vocabulary lacks more than the target's padding."""
    return 0 < draft < target and not same_but_padding(draft, target)


def absent(case: Case) -> Iterator[Problem]:
    config = case.draft.text
    if (
        _reduced(number(config, "draft_vocab_size"), number(config, "vocab_size"))
        and case.draft.tensors
        and tensor(case, "d2t") is None
    ):
        yield Problem(
            _WHERE,
            f"is missing: the draft's {draft_vocabulary(config)} ids would be taken for the target's first ones",
            "export the checkpoint with its vocabulary map (SpecForge: --vocab-mapping-path)",
        )


def kind(case: Case) -> Iterator[Problem]:
    info = tensor(case, "d2t")
    if info is not None and info.dtype not in ("I64", "I32"):
        yield Problem(_WHERE, f"is of type {info.dtype}, which cannot index a vocabulary", "save it as int64")


def length(case: Case) -> Iterator[Problem]:
    info = tensor(case, "d2t")
    wanted = draft_vocabulary(case.draft.text)
    if info is not None and info.shape != (wanted,):
        yield Problem(_WHERE, f"has shape {list(info.shape)}, draft_vocab_size is {wanted}", _EXPORT)


def looks_absolute(values: Sequence[int]) -> bool:
    """Whether d2t holds target ids instead of differences.

    Target ids ascend strictly. Differences that do so at every step would mean that no two neighbouring ids of the
    target are both in the draft's vocabulary.

    >>> looks_absolute([0, 1, 2, 5, 6, 9])
    True
    >>> looks_absolute([0, 0, 0, 2, 2, 4])
    False
    """
    return len(values) >= _SHORTEST and all(a < b for a, b in pairwise(values))


def absolute(case: Case) -> Iterator[Problem]:
    values = _values(case)
    if values and looks_absolute(values):
        yield Problem(
            _WHERE,
            f"holds target ids ({values[0]}, {values[1]}, {values[2]}, ...) where SGLang adds it to the draft's ids",
            _EXPORT,
        )


def in_range(case: Case) -> Iterator[Problem]:
    values, size = _values(case), _vocabulary(case)
    outside = [i for i, v in enumerate(values or ()) if not 0 <= i + v < size]
    if values and outside:
        first = outside[0]
        yield Problem(
            _WHERE,
            f"maps {len(outside)} draft ids outside the target's vocabulary of {size}, the first {first} -> "
            f"{first + values[first]}: a GPU stops at the first that is drafted",
            _EXPORT if looks_absolute(values) else "take the map that belongs to this target's tokenizer",
        )


def order(case: Case) -> Iterator[Problem]:
    values = _values(case)
    targets = [i + v for i, v in enumerate(values or ())]
    if len(set(targets)) < len(targets):
        yield Problem(
            _WHERE,
            f"maps {len(targets) - len(set(targets))} draft ids to a target id that another one has: it is damaged",
            _EXPORT,
        )
    elif any(a > b for a, b in pairwise(targets)):
        yield Problem(
            _WHERE,
            "the target ids do not ascend; SpecForge's maps do",
            "check that d2t and the rows of lm_head.weight are of one export",
            Level.WARNING,
        )


def untouched(case: Case) -> Iterator[Problem]:
    values = _values(case)
    if values and not any(values) and _reduced(len(values), _vocabulary(case)):
        yield Problem(
            _WHERE,
            f"is all zeros, so that the draft's {len(values)} ids are the target's first ones; a map that was "
            "never filled looks like this",
            "export the checkpoint with its vocabulary map",
        )


def other_way(case: Case) -> Iterator[Problem]:
    """``t2d`` marks the target ids that the draft has; SGLang does not read it, so it can tell whether d2t is right."""
    values, info = _values(case), tensor(case, "t2d")
    if not values or info is None or info.dtype not in ("BOOL", "U8", "I8") or looks_absolute(values):
        return
    marked = [i for i, mark in enumerate(read_integers(case.draft.files, info)) if mark]
    if marked and marked != sorted(i + v for i, v in enumerate(values)):
        yield Problem(
            "weights: d2t, t2d",
            f"d2t leads to other target ids than the {len(marked)} that t2d marks",
            "take both from the same vocabulary map",
        )


def tied(case: Case) -> Iterator[Problem]:
    """A tied head is the target's embedding, in the target's vocabulary."""
    config = case.draft.text
    if not config.get("tie_word_embeddings"):
        return
    reduced = draft_vocabulary(config) != number(config, "vocab_size")
    if reduced or tensor(case, "lm_head.weight") is not None:
        why = "its vocabulary is reduced" if reduced else "it has an lm_head of its own, which is not loaded"
        yield Problem(
            "config.json: tie_word_embeddings",
            f"is true, though {why}: SGLang puts the target's embedding in place of the draft's head",
            "set it to false",
        )


MAP_RULES = (
    Rule("d2t-missing", (Level.SILENT,), "a reduced vocabulary comes with its map d2t", absent, EAGLE3_KINDS),
    Rule("d2t-type", (Level.ERROR,), "d2t is an integer tensor", kind, EAGLE3_KINDS),
    Rule("d2t-length", (Level.ERROR,), "d2t has draft_vocab_size entries", length, EAGLE3_KINDS),
    Rule("d2t-absolute", (Level.SILENT,), "d2t holds differences, not target ids", absolute, EAGLE3_KINDS),
    Rule("d2t-range", (Level.ERROR,), "d2t leads to ids of the target's vocabulary", in_range, EAGLE3_KINDS),
    Rule(
        "d2t-order",
        (Level.SILENT, Level.WARNING),
        "the target ids that d2t leads to are distinct, and ascend",
        order,
        EAGLE3_KINDS,
    ),
    Rule(
        "d2t-zeros", (Level.SILENT,), "d2t of a reduced vocabulary is not all zeros", untouched, EAGLE3_KINDS
    ),
    Rule("d2t-t2d", (Level.SILENT,), "d2t and t2d agree, where there are both", other_way, EAGLE3_KINDS),
    Rule(
        "tied-head",
        (Level.SILENT,),
        "tie_word_embeddings is false for a draft with a reduced vocabulary or a head of its own",
        tied,
        EAGLE3_KINDS,
    ),
)
