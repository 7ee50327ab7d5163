"""Where sweeper keeps what it need not find out twice."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """``$XDG_CACHE_HOME/sweeper/NAME``, by default under ``~/.cache``; it need not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sweeper" / name
