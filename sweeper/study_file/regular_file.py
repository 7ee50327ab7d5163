"""Reads a file that a person names, without ever waiting for it or filling the memory with it."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class UnreadableFileError(Exception):
    """Why a file cannot be used, in words; ``line`` is where, counted from 1, if there is such a place."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        self.reason, self.line = reason, line
        super().__init__(reason)


def read_text(path: Path, limit: int) -> str:
    """The UTF-8 text of a regular file of at most ``limit`` bytes, with ``\\n`` for every line end, without a mark.

    Raises:
        UnreadableFileError: it is missing, a directory, a pipe or a device (which could be waited for for ever), too
            large, or no UTF-8.
    """
    content = _read(path, limit)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        mark = "; it begins like UTF-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise UnreadableFileError(
            f"not UTF-8 text ({error.reason} at byte {error.start}{mark})",
            1 + content.count(b"\n", 0, error.start),
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read(path: Path, limit: int) -> bytes:
    try:
        _require_regular(path.stat().st_mode)
        # It may be another file by now: O_NONBLOCK does not wait for the other end of a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            _require_regular(os.fstat(descriptor).st_mode)
            content = file.read(limit + 1)
    except OSError as error:
        raise UnreadableFileError(f"cannot be read: {error.strerror}") from None
    except ValueError:  # a NUL byte in the path
        raise UnreadableFileError("cannot be read: no name of a file") from None
    if len(content) > limit:
        raise UnreadableFileError(f"larger than {limit:,} bytes")
    return content


def _require_regular(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise UnreadableFileError("cannot be read: Is a directory")
    if not stat.S_ISREG(mode):
        raise UnreadableFileError("no regular file but a pipe, a device or a socket")
