"""An Optuna storage that waits out what passes by itself, and lets nobody write but the study's driver."""

from __future__ import annotations

import abc
import re
from collections.abc import Callable, Sequence
from typing import Any

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, RDBStorage
from optuna.trial import TrialState
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, InterfaceError, InternalError, OperationalError, PendingRollbackError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import Session

from sweeper.storage.patience import Patience

HOPELESS = re.compile(
    "authentication failed|access denied|does not exist|unknown database|no pg_hba.conf entry|no password supplied|"
    "unable to open database file|not a database|malformed",
    re.IGNORECASE,
)
"""What databases say of errors that no waiting mends."""

Fence = Callable[[Session], None]
"""Called within a transaction that writes, before it is committed; raises where this process may no longer write."""


def passing_storage_error(error: Exception) -> str | None:
    """What is wrong with the storage, if waiting may help: locked, full, read-only, down; None if not."""
    cause = error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ else error
    if isinstance(cause, PoolTimeoutError | PendingRollbackError):
        return "the connection was lost"
    if not isinstance(cause, DBAPIError) or HOPELESS.search(str(cause.orig)):
        return None
    cut_off = cause.connection_invalidated or isinstance(
        cause, OperationalError | InterfaceError | InternalError
    )
    return said(cause) if cut_off else None


def said(error: BaseException) -> str:
    """The first line of what the database itself said."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


class PatientStorage(BaseStorage):
    """An Optuna storage whose every operation is tried again while that may help.

    An operation whose answer was lost may have been carried out. That is harmless for all but two: a state that was
    set already is not set again, and a trial may be created twice (the sweep gives up the second one when it comes to
    it).
    """

    def __init__(self, inner: BaseStorage, patience: Patience) -> None:
        self.inner, self.patience = inner, patience
        self._writing = False

    def guard(self, sessions: Any, fence: Fence) -> None:
        """Call ``fence`` in every transaction that writes through this object; ``sessions`` makes them."""

        def before_commit(session: Session) -> None:
            if self._writing:
                fence(session)

        event.listen(sessions, "before_commit", before_commit)

    def uncertain(self) -> None:
        """Called before an operation is tried again: nobody here knows what the attempt before has done."""

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        tried = False

        def attempt() -> Any:
            nonlocal tried
            if tried:
                self.uncertain()
            tried = True
            self._writing = name.startswith(("create_", "delete_", "set_"))
            try:
                return getattr(self.inner, name)(*arguments, **named)
            finally:
                self._writing = False

        return self.patience("storage", attempt, passing_storage_error)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        tried = False

        def attempt() -> bool:
            nonlocal tried
            if tried:
                self.uncertain()
                if self.inner.get_trial(trial_id).state == state:
                    return True
            tried, self._writing = True, True
            try:
                return self.inner.set_trial_state_values(trial_id, state, values)
            finally:
                self._writing = False

        return self.patience("storage", attempt, passing_storage_error)


def _forwarded(name: str) -> Callable[..., Any]:
    def method(self: PatientStorage, *arguments: Any, **named: Any) -> Any:
        return self._call(name, *arguments, **named)

    method.__name__ = name
    return method


for _name in (name for name in vars(BaseStorage) if not name.startswith("_")):
    if _name not in vars(PatientStorage):
        setattr(PatientStorage, _name, _forwarded(_name))
abc.update_abstractmethods(PatientStorage)  # type: ignore[type-abstract]


def patient(rdb: RDBStorage, patience: Patience, fence: Fence | None) -> BaseStorage:
    """``rdb``, cached as Optuna caches it, with patience; nothing is committed that ``fence`` does not let pass."""
    make: Any = PatientStorage  # its methods come from the loop above, unseen by type checkers
    storage: PatientStorage = make(optuna.storages.get_storage(rdb), patience)
    if fence is not None:
        storage.guard(rdb.scoped_session, fence)
    return storage
