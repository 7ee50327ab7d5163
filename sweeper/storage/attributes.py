"""Long values as user attributes: MySQL keeps 65,535 bytes of each, and a record with its log's end may be longer.

A value that is too long is stored as text in parts, and its name then holds how many there are. Parts are named by
their content and written before the name is, so that a reader finds the old value or the new one, never a mixture.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

LONGEST = 60_000
"""Bytes of a value as Optuna stores it, which is ASCII."""

RECORD = "record"
"""A trial's attribute that may be long."""

LONG = 2_000
"""Bytes from which a value is worth compressing in memory."""


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
    value = _plain(attributes.get(name, default))
    if isinstance(value, dict) and value.keys() == {"parts", "digest"}:
        parts = (_plain(attributes[_part(name, value["digest"], i)]) for i in range(value["parts"]))
        return json.loads("".join(parts))
    return value


class Compressed:
    """A value in memory as text, compressed: tens of times smaller than the objects it stands for."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = zlib.compress(text.encode(), 1)

    def value(self) -> Any:
        return json.loads(zlib.decompress(self._text))


def compressed(attributes: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The same attributes with that of one name, or its parts, compressed if it is long; ``unpacked`` reads both."""
    texts = {key: json.dumps(value) for key, value in attributes.items() if key.startswith(name)}
    long = {key: Compressed(text) for key, text in texts.items() if len(text) > LONG}
    return {**attributes, **long}


def _plain(value: Any) -> Any:
    return value.value() if isinstance(value, Compressed) else value


def _part(name: str, digest: str, number: int) -> str:
    return f"{name} part {digest} {number}"
