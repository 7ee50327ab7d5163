"""Long values as user attributes: MySQL keeps 65,535 bytes of each, and a record with its log's end may be longer.

A value that is too long is stored as text in parts, and its name then holds how many there are. Parts are named by
their content and written before the name is, so that a reader finds the old value or the new one, never a mixture.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

LONGEST = 60_000
"""Bytes of a value as Optuna stores it, which is ASCII."""


def packed(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The attributes that hold ``value``, in the order in which they must be written."""
    text = json.dumps(value)
    if len(text) > LONGEST:
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        step = LONGEST // 2  # as text in JSON once more, every character may need a backslash
        parts = [text[at : at + step] for at in range(0, len(text), step)]
        yield from ((_part(name, digest, i), part) for i, part in enumerate(parts))
        value = {"parts": len(parts), "digest": digest}
    yield name, value


def unpacked(attributes: Mapping[str, Any], name: str, default: Any = None) -> Any:
    """The value that ``packed`` took apart; ``default`` where there is none."""
    value = attributes.get(name, default)
    if isinstance(value, dict) and value.keys() == {"parts", "digest"}:
        return json.loads("".join(attributes[_part(name, value["digest"], i)] for i in range(value["parts"])))
    return value


def is_part(name: str) -> bool:
    return " part " in name


def _part(name: str, digest: str, number: int) -> str:
    return f"{name} part {digest} {number}"
