"""Where sweeper keeps what it need not find out twice."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """``$XDG_CACHE_HOME/sweeper/NAME``, by default under ``~/.cache``; it need not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sweeper" / name


def cached_answer(kind: str, *identity: str) -> Path:
    """The file of an answer that depends on all of ``identity`` and on nothing else."""
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:16]
    return user_cache(kind) / f"{digest}.json"


def write_cached(path: Path, content: bytes) -> None:
    """Atomically, and readable by the user alone: prompts may be private. A cache that cannot be written is none."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        scratch = path.with_suffix(f".{os.getpid()}.tmp")
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(content)
        scratch.replace(path)
    except OSError:
        pass
