"""Lock files: one driver per run directory, and per study of a SQLite database, among the processes of one machine."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sweeper.driver.holder import Holder
from sweeper.errors import SweeperError


def run_lock(run: Path) -> Path:
    return run / "driver.lock"


def database_lock(database: Path, study: str) -> Path:
    """For a SQLite database that lies elsewhere than in the run directory."""
    return database.with_name(f"{database.name}.{study}.lock")


def taken(study: str, who: object) -> SweeperError:
    """The refusal of a second driver."""
    return SweeperError(
        f"study {study!r} is driven by another process ({who}); wait for it, stop it, or choose another name with "
        "--name"
    )


@contextmanager
def locked(path: Path, study: str, holder: Holder, necessary: bool = True) -> Iterator[None]:
    """Hold a lock file, which goes with the process however it ends; other machines need not see it.

    ``necessary`` is false where a lease guards the study as well: a file system without locks is then good enough.

    Raises:
        SweeperError: another process holds it, or it cannot be had.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+")  # noqa: SIM115
    except OSError as error:
        raise SweeperError(f"{path}: cannot be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                file.seek(0)
                raise taken(study, file.read().strip() or "it has just begun") from None
            if necessary:
                raise SweeperError(f"{path}: cannot be locked: {error.strerror}") from None
        file.truncate(0)
        file.write(str(holder))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def refuse_locked(path: Path, study: str) -> None:
    """Raises SweeperError where another process holds a lock file; creates and changes nothing."""
    try:
        with open(path) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise taken(study, file.read().strip() or "it has just begun") from None
    except OSError:
        return  # there is none, or it cannot be read: whoever takes it finds out
