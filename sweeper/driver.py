"""The process that drives a study: there is one at a time, and it alone writes the storage and the run directory."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from optuna.storages import BaseStorage

from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.holder import Holder
from sweeper.lease import leased, taken
from sweeper.patience import Patience
from sweeper.run_directory import RunDirectory
from sweeper.storage import connect, open_storage, refuse_network_file_system, sqlite_file, storage_url
from sweeper.whole_files import remove_half_written

OPEN_S = 20.0
"""How long a storage that does not answer is waited for at the start, when somebody may be watching."""


@dataclass(frozen=True)
class Driver:
    """What only the study's driver has. ``check`` raises LeaseLostError once another process is that.

    ``patience`` is that of the storage and of the run directory alike; it is short until the sweep runs.
    """

    run: RunDirectory
    storage: BaseStorage
    patience: Patience
    check: Callable[[], None]


@contextmanager
def driving(config: StudyConfig, path: Path, say: Callable[[str], None]) -> Iterator[Driver]:
    """Drive the study of a run directory for as long as the block runs; ``say`` tells the person what is waited for.

    Raises:
        SweeperError: another process drives it, or its storage cannot be used.
    """
    url = storage_url(config, path)
    refuse_network_file_system(url)
    patience = Patience(min(OPEN_S, config.storage_timeout_s), say)
    holder = Holder.this_process(path)
    database = sqlite_file(url)
    with ExitStack() as held:
        held.enter_context(locked(path / "driver.lock", config.study, holder, database is not None))
        lease = None
        if database is None:
            engine = connect(url, pool_size=1, max_overflow=1)
            lease = held.enter_context(leased(engine, config.study, holder, patience))
        elif database.resolve().parent != path.resolve():
            lock = database.with_name(f"{database.name}.{config.study}.lock")
            held.enter_context(locked(lock, config.study, holder))
        remove_half_written(path)
        storage = open_storage(url, patience, lease.fence if lease else None)
        yield Driver(RunDirectory(path, patience), storage, patience, lease.check if lease else lambda: None)


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
