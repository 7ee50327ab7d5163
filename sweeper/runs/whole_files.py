"""Files that are there whole or not at all, whenever the writer is killed or the disk is full."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

SCRATCH = ".tmp"
"""How the name of a half-written file ends."""


def write_whole(path: Path, content: bytes) -> None:
    """Put ``content`` in the place of ``path``, on the disk and not only in the page cache.

    Raises:
        OSError: it could not be written; ``path`` is what it was before, and nothing else stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.{os.getpid()}{SCRATCH}")
    try:
        with open(scratch, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # or the new name may outlive a crash of the machine, but not the content
        scratch.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    with contextlib.suppress(OSError):  # some network file systems refuse it
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_half_written(directory: Path) -> None:
    """What killed writers left under a directory that nobody writes to now."""
    for scratch in directory.rglob(f"*{SCRATCH}"):
        with contextlib.suppress(OSError):
            scratch.unlink()
