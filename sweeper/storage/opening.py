"""Opens Optuna's storage: the URL of a study, what it may be, and patience with what passes by itself."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from sqlalchemy import create_engine
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.storage.file_systems import Mount, mount_of, mounts
from sweeper.storage.patience import Patience
from sweeper.storage.patient import Fence, passing_storage_error, patient, said
from sweeper.storage.remembering import remembering
from sweeper.study_file.variables import VARIABLE, expand

READ_S = 15.0
"""How long a report waits for a storage that is locked or starting."""

CREATION_S = 10.0
"""How long several drivers that create the tables of one database at the same time may get in each other's way."""

RACE = re.compile("already exists|duplicate|unique constraint|concurrent", re.IGNORECASE)
"""What they say where another process creates the same tables; Optuna guards against that in part only."""

TIMEOUTS: dict[str, dict[str, Any]] = {
    "sqlite": {"timeout": 5},
    "psycopg": (
        libpq := {
            "connect_timeout": 5,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 15_000,
        }
    ),
    "psycopg2": libpq,
    "pymysql": (mysql := {"connect_timeout": 5, "read_timeout": 30, "write_timeout": 30}),
    "mysqldb": mysql,
}
"""Arguments by database driver, so that a machine that vanished does not hold the sweep for as long as TCP would."""


def storage_url(config: StudyConfig, run: Path) -> URL:
    """The study's URL with ``${VAR}`` expanded, or SQLite in the run directory ``run``.

    A variable in the place of user or password may hold any character; elsewhere it stands for itself.

    Raises:
        SweeperError: it names an unset variable, or is no URL of a database. Its text is not shown: it may be secret.
    """
    if not config.storage:
        return URL.create("sqlite", database=str(run.resolve() / "study.db"))
    try:
        user = re.match(r"[^:/]+://([^/]*)@", config.storage)
        secret = user.end(1) if user else 0
        quoted = VARIABLE.sub(lambda found: quote(expand(found[0]), safe=""), config.storage[:secret])
        url = make_url(quoted + expand(config.storage[secret:]))
    except KeyError as error:
        raise SweeperError(f"storage: environment variable {error.args[0]} is not set") from None
    except (ArgumentError, ValueError):
        raise SweeperError(
            "storage: no URL of a database; for instance postgresql+psycopg://sweeper:${PASSWORD}@host/sweeper"
        ) from None
    if url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:"):
        raise SweeperError(
            "storage: a study in memory cannot be continued; name a file: sqlite:////path/to/study.db"
        )
    return url


def sqlite_file(url: URL) -> Path | None:
    """The file of a SQLite database, None for a database of another kind."""
    return Path(url.database or "") if url.get_backend_name() == "sqlite" else None


def refuse_network_file_system(url: URL, mounted: Sequence[Mount] | None = None) -> None:
    """``mounted`` are the mounts of this machine unless they are given.

    Raises:
        SweeperError: the database is SQLite on a file system of another machine.
    """
    file = sqlite_file(url)
    mount = mount_of(file, mounts() if mounted is None else mounted) if file else None
    if mount and mount.over_network:
        raise SweeperError(
            f"storage: {file} would be a SQLite database on {mount.kind} ({mount.point}), where locks and writes "
            "are not reliable and studies get corrupted. Set storage: to a database server, for instance "
            "postgresql+psycopg://USER:${PASSWORD}@HOST/DATABASE (then runs_dir may stay where it "
            "is), or runs_dir: to a local disk"
        )


def connect(url: URL, **options: Any) -> Engine:
    """An engine with timeouts; nothing is connected yet.

    Raises:
        SweeperError: the URL names an unknown kind of database, or its driver is not installed.
    """
    try:
        return create_engine(url, **_options(url), **options)
    except NoSuchModuleError:
        raise SweeperError(f"storage: no kind of database is called {url.drivername!r}") from None
    except ImportError as error:
        hint = "; pip install 'sweeper[postgresql]'" if url.get_backend_name() == "postgresql" else ""
        raise SweeperError(
            f"storage: {url.drivername} needs the package {error.name or 'of its driver'}{hint}"
        ) from None


def _options(url: URL) -> dict[str, Any]:
    timeouts = TIMEOUTS.get(url.get_dialect().driver, {})
    return {"pool_pre_ping": True, "connect_args": {**timeouts}}


def _creation_error(error: Exception) -> str | None:
    """Also what another process that creates the same tables may cause."""
    cause = error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ else error
    raced = isinstance(cause, DBAPIError) and RACE.search(str(cause.orig))
    return said(cause) if raced else passing_storage_error(error)


def open_storage(
    url: URL, patience: Patience, fence: Fence | None = None, only_writer: bool = False
) -> BaseStorage:
    """Optuna's storage; its tables are created where they are missing.

    ``only_writer``: nobody but this process writes the study, so that it needs to be read only once.

    Raises:
        StorageLostError: it stays locked or down.
        SweeperError: it cannot be opened, or was written by another release of Optuna.
    """
    connect(url).dispose()  # the error of a missing driver is clearer here
    text = url.render_as_string(hide_password=False)
    began = time.monotonic()

    def passing(error: Exception) -> str | None:
        creating = time.monotonic() - began < CREATION_S
        return _creation_error(error) if creating else passing_storage_error(error)

    try:
        rdb = patience("storage", lambda: RDBStorage(text, engine_kwargs=_options(url)), passing)
    except (SQLAlchemyError, StorageInternalError) as error:
        raise SweeperError(f"storage: cannot be opened: {said(error.__cause__ or error)}") from error
    except RuntimeError as error:  # Optuna's word for tables of another release
        raise SweeperError(f"storage: {error}") from error
    return (remembering if only_writer else patient)(rdb, patience, fence)
