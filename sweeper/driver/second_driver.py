"""Refuses a second driver before anything costly is imported, connected to or started."""

from __future__ import annotations

from pathlib import Path

from sweeper.config import StudyConfig
from sweeper.driver.holder import Holder
from sweeper.driver.lease import Lease
from sweeper.driver.lock_file import database_lock, refuse_locked, run_lock
from sweeper.storage.opening import connect, refuse_network_file_system, sqlite_file, storage_url


def refuse_second_driver(config: StudyConfig, path: Path) -> None:
    """``path`` is the run directory. Takes nothing: ``sweeper.driver.driving.driving`` does, and may still be refused.

    Raises:
        SweeperError: another process drives the study, or its storage cannot be used.
    """
    url = storage_url(config, path)
    refuse_network_file_system(url)
    refuse_locked(run_lock(path), config.study)
    database = sqlite_file(url)
    if database is not None:
        refuse_locked(database_lock(database, config.study), config.study)
        return
    engine = connect(url)
    try:
        Lease(engine, config.study, Holder.this_process(path)).refuse_second()
    finally:
        engine.dispose()
