"""The process that drives a study: there is one at a time, and it alone writes the storage and the run directory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from optuna.storages import BaseStorage

from sweeper.config import StudyConfig
from sweeper.driver.holder import Holder
from sweeper.driver.lease import leased
from sweeper.driver.lock_file import database_lock, locked, run_lock
from sweeper.runs.directory import RunDirectory
from sweeper.runs.whole_files import remove_half_written
from sweeper.storage.opening import (
    connect,
    open_storage,
    refuse_network_file_system,
    sqlite_file,
    storage_url,
)
from sweeper.storage.patience import Patience

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
        held.enter_context(locked(run_lock(path), config.study, holder, database is not None))
        lease = None
        if database is None:
            engine = connect(url, pool_size=1, max_overflow=1)
            lease = held.enter_context(leased(engine, config.study, holder, patience))
        elif database.resolve().parent != path.resolve():
            held.enter_context(locked(database_lock(database, config.study), config.study, holder))
        remove_half_written(path)
        storage = open_storage(url, patience, lease.fence if lease else None, only_writer=True)
        yield Driver(RunDirectory(path, patience), storage, patience, lease.check if lease else lambda: None)
