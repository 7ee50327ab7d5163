"""Whether two checkpoints number their tokens alike, from their tokenizers' files."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sweeper.drafts.preflight.checkpoint import Checkpoint

FAST = "tokenizer.json"
_OTHER_FILES = ("tokenizer.model", "vocab.json", "tiktoken.model")


@dataclass(frozen=True)
class Difference:
    """``how`` says in words by what the draft's ``file`` differs from the target's."""

    file: str
    how: str


def difference(draft: Checkpoint, target: Checkpoint) -> Difference | None:
    """None where the tokens have the same ids, or one of the two has no tokenizer to compare.

    Files that only look different (merges, normalizers, formatting) are the same as far as ids go.
    """
    own, theirs = draft.files.read(FAST), target.files.read(FAST)
    if own is not None and theirs is not None:
        return None if own == theirs else _ids_differ(own, theirs)
    for name in _OTHER_FILES:
        own, theirs = draft.files.read(name), target.files.read(name)
        if own is not None and theirs is not None and own != theirs:
            return Difference(name, "the files differ")
    return None


def _ids_differ(own: bytes, theirs: bytes) -> Difference | None:
    ours, others = _ids(own), _ids(theirs)
    if not ours or not others or ours == others:
        return None
    moved = [token for token, number in ours.items() if others.get(token, number) != number]
    unknown = len(ours.keys() - others.keys())
    words = [f"{len(moved)} tokens have other ids"] if moved else []
    words += [f"{unknown} tokens are not the target's"] if unknown else []
    words += (
        [f"{len(others.keys() - ours.keys())} of the target's are missing"]
        if others.keys() - ours.keys()
        else []
    )
    example = f" (e.g. {moved[0]!r}: {ours[moved[0]]}, not {others[moved[0]]})" if moved else ""
    return Difference(FAST, ", ".join(words) + example)


def _ids(content: bytes) -> dict[str, int]:
    """Token ids by text; empty where the file is of a shape nobody here knows."""
    try:
        parsed = json.loads(content)
        vocabulary = parsed["model"]["vocab"]
        added = {entry["content"]: entry["id"] for entry in parsed.get("added_tokens") or ()}
    except (ValueError, KeyError, TypeError):
        return {}
    if isinstance(vocabulary, list):  # Unigram: pairs of a token and its score
        vocabulary = {entry[0]: i for i, entry in enumerate(vocabulary)}
    return {**vocabulary, **added}
