"""A run directory as one file, taken while its driver writes, and put back in one step."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import quote

from sweeper.errors import SweeperError

DATABASE = "study.db"
END = ".end-of-run"
"""The last member of an archive: tar itself does not tell one that is cut off between two files."""

_OWN = ("driver.lock", f"{DATABASE}-journal", f"{DATABASE}-wal", f"{DATABASE}-shm")
"""Files that mean something to the running driver only."""


def files_of(run: Path) -> Iterator[Path]:
    """The files that make up a run; neither its database nor what is only half written."""
    for path in sorted(run.rglob("*")):
        if path.name in (*_OWN, DATABASE) or path.suffix in (".tmp", ".part"):
            continue
        if path.is_file() and not path.is_symlink():
            yield path


@contextmanager
def database_snapshot(run: Path) -> Iterator[Path | None]:
    """A consistent copy of the run's database, None where the study lives elsewhere; it goes with the context."""
    if not (run / DATABASE).is_file():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="sweeper-snapshot-") as scratch:
        copy = Path(scratch) / DATABASE
        source = f"file:{quote(str((run / DATABASE).resolve()))}?mode=ro"
        with (
            closing(sqlite3.connect(source, uri=True, timeout=60)) as live,
            closing(sqlite3.connect(copy)) as taken,
        ):
            live.backup(taken)
        yield copy


def pack_run(run: Path, archive: IO[bytes]) -> None:
    """Write the run as a tar (its tables are compressed already); every file stands under the study's name."""
    with tarfile.open(fileobj=archive, mode="w|") as tar:
        for path in files_of(run):
            try:
                tar.add(path, f"{run.name}/{path.relative_to(run)}", recursive=False)
            except FileNotFoundError:  # replaced or removed while we walked
                continue
        with database_snapshot(run) as database:
            if database:
                tar.add(database, f"{run.name}/{DATABASE}")
        tar.addfile(tarfile.TarInfo(f"{run.name}/{END}"))


def unpack_run(archive: Path, to: Path) -> None:
    """Put a packed run at ``to``, complete or not at all; what stood there before is replaced.

    Raises:
        SweeperError: the archive is damaged, or holds anything but one run.
    """
    with new_directory(to) as scratch:
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(scratch, filter="data")
        except (tarfile.TarError, EOFError) as error:
            raise SweeperError(f"the run's archive is damaged: {error}") from None
        inside = list(scratch.iterdir())
        if len(inside) != 1 or not (inside[0] / END).is_file():
            raise SweeperError("the run's archive is damaged: it is cut off, or not of a run")
        (inside[0] / END).unlink()
        check_database(inside[0])
        replace_directory(inside[0], to)


@contextmanager
def new_directory(beside: Path) -> Iterator[Path]:
    """A scratch directory on the same file system as ``beside``."""
    beside.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{beside.name}-", dir=beside.parent))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def replace_directory(new: Path, old: Path) -> None:
    """Move ``new`` to where ``old`` is; ``old`` goes."""
    with new_directory(old) as aside:
        if old.exists():
            os.rename(old, aside / old.name)
        os.rename(new, old)


def set_aside(run: Path) -> Path | None:
    """Rename a run that a newer copy replaces: it may hold a trial that the newer one lacks. None where no run is."""
    if not (run / "study.yaml").is_file():
        return None
    number = 1
    while (aside := run.with_name(f"{run.name}.older-{number}")).exists():
        number += 1
    return run.rename(aside)


def check_database(run: Path) -> None:
    """Raises SweeperError if the run's database is there and damaged."""
    if not (run / DATABASE).is_file():
        return
    with closing(sqlite3.connect(run / DATABASE)) as database:
        try:
            [(answer,)] = database.execute("PRAGMA quick_check").fetchall()
        except (sqlite3.DatabaseError, ValueError) as error:
            answer = str(error)
    if answer != "ok":
        raise SweeperError(f"{run / DATABASE}: the copied database is damaged: {answer}")
