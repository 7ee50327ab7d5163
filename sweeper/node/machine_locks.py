"""Things of one machine that processes share out among themselves: a port or a CPU belongs to who locks its file.

Only the locks mean something, and a killed process holds none, so nothing has to be cleaned up after it.
"""

from __future__ import annotations

import contextlib
import fcntl
import tempfile
from pathlib import Path
from typing import IO


def lock_directory(name: str) -> Path:
    """The machine's directory for locks of one kind, open to all users. Raises OSError where it cannot be had."""
    directory = Path(tempfile.gettempdir()) / name
    directory.mkdir(mode=0o777, exist_ok=True)
    with contextlib.suppress(PermissionError):  # someone else made it
        directory.chmod(0o777)
    return directory


def try_lock(path: Path) -> IO[str] | None:
    """The locked file, None where another process has it; closing it gives it back."""
    try:
        file = path.open("a")
    except OSError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    if not path.exists():  # its owner ended, and removed it, between our opening and locking it
        file.close()
        return None
    return file
