"""Text from outside (server logs, study files, storages) made fit for a terminal, a table and a comment.

A terminal obeys escape sequences, and a YAML comment ends at any of YAML's line breaks, so neither may get them raw.
"""

from __future__ import annotations

import re

_COLOURS = re.compile(r"\x1b\[[0-9;:]*m|\x1b\[[0-9;]*[GJK]")
"""What progress bars and loggers send: colours, cursor to a column, erase. They carry no meaning in a file."""

_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 and C1 but tab and newline: escape, carriage return, next line, ...
    "\u2028\u2029"  # line and paragraph separator: line breaks to YAML and to str.splitlines
    "\u202a-\u202e\u2066-\u2069"  # they turn the order of what is read around
    "\ud800-\udfff]"  # no characters at all: they cannot be written as UTF-8
)
_BREAK = re.compile("[\t\n]")


def first_unprintable(text: str, allow: str = "") -> str | None:
    """The first character that a name, a path or a flag cannot have; newline and tab are among them unless allowed."""
    for pattern in (_CONTROL, _BREAK):
        for found in pattern.finditer(text):
            if found[0] not in allow:
                return found[0]
    return None


def shown(character: str) -> str:
    r"""``\x1b``: a character that cannot be printed, as Python writes it."""
    return ascii(character)[1:-1]


def printable(text: str) -> str:
    r"""The text with control characters in writing (``\x1b``); colours are dropped, every kind of line end becomes one.

    Printing it moves no cursor, sets no window title and reorders nothing. Doing it twice changes nothing.
    """
    text = _COLOURS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _CONTROL.sub(lambda found: shown(found[0]), text)


def one_line(text: str, limit: int = 2000) -> str:
    r"""The text as one printable line, cut at ``limit`` characters: for comments and error messages."""
    text = _BREAK.sub(lambda found: shown(found[0]), printable(text))
    return text if len(text) <= limit else f"{text[: limit // 2]} ... {text[-limit // 2 :]}"
