"""Which storages this user drives studies in. A report connects to no other one unasked.

A run directory may come from anybody, and its study.yaml may name any storage: connecting there would send the
variables it names (``${PGPASSWORD}``) to whoever waits at its address. So every storage that a sweep of this user
opened is noted here, and reports open those alone.
"""

from __future__ import annotations

import os
from pathlib import Path

from sweeper.errors import SweeperError
from sweeper.printable import one_line
from sweeper.user_cache import cached_answer, write_cached

TRUSTED = "SWEEPER_STORAGE"
"""An environment variable that says the same: this storage is mine."""


def note_storage(storage: str | None) -> None:
    """A sweep drives its study there. ``storage`` is as in the study file, with ``${VAR}``; None needs no note."""
    if storage:
        write_cached(_note(storage), b"{}")


def require_known_storage(storage: str | None, run: Path) -> None:
    """Raises SweeperError where a run's study.yaml names a storage that no sweep of this user was driven in."""
    if not storage or os.environ.get(TRUSTED) == storage or _note(storage).is_file():
        return
    raise SweeperError(
        f"{run}/study.yaml: storage: no study was run from here in {one_line(storage, 200)}, and connecting would send "
        f"the variables that it names to that address; if you trust it, put it into the environment: {TRUSTED}='...'"
    )


def _note(storage: str) -> Path:
    return cached_answer("storages", storage)
