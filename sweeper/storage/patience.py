"""Waiting out what passes by itself: a locked storage, a full disk, a database that restarts."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable
from typing import TypeVar

from sweeper.errors import StorageLostError, SweeperError

T = TypeVar("T")

FIRST_S = 0.2
LONGEST_S = 5.0
SAY_EVERY_S = 60.0

PASSING = frozenset(
    {
        errno.EAGAIN,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EHOSTDOWN,
        errno.EIO,
        errno.ENOLCK,
        errno.ENOSPC,
        errno.ENOTCONN,
        errno.EROFS,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
"""Errors of a file system that somebody may mend while the sweep waits."""


def passing_file_error(error: Exception) -> str | None:
    """What is wrong with the file system, if waiting may help; None if not."""
    if isinstance(error, OSError) and error.errno in PASSING:
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}"
    return None


class Patience:
    """Tries again for at most ``limit_s`` seconds, and says what it waits for; ``limit_s`` may be changed any time."""

    def __init__(self, limit_s: float, say: Callable[[str], None] = lambda text: None) -> None:
        self.limit_s, self.say = limit_s, say
        self.meanwhile: Callable[[], None] | None = None
        """Called between two attempts, for work that needs nothing of what is waited for."""

    def __call__(
        self,
        what: str,
        attempt: Callable[[], T],
        passing: Callable[[Exception], str | None] = passing_file_error,
    ) -> T:
        """What ``attempt`` returns; ``what`` names the thing that fails, ``passing`` tells why, or None: no use.

        Raises:
            StorageLostError: it still failed after ``limit_s`` seconds.
            SweeperError: a file cannot be written, and waiting would not help.
        """
        began, said_at, pause_s = time.monotonic(), 0.0, FIRST_S
        while True:
            try:
                result = attempt()
            except Exception as error:
                reason = passing(error)
                if reason is None and isinstance(error, OSError):
                    raise SweeperError(f"{what}: {error}") from error
                if reason is None:
                    raise
                waited = time.monotonic() - began
                if waited >= self.limit_s:
                    raise StorageLostError(
                        f"{what}: {reason} (tried for {waited:.0f} s); when that is mended, the same command continues "
                        "the study"
                    ) from error
                if not said_at or time.monotonic() - said_at >= SAY_EVERY_S:
                    self.say(f"{what}: {reason}; trying again, for {self.limit_s - waited:.0f} s at most")
                    said_at = time.monotonic()
                self._use_the_time()
                time.sleep(max(0.0, min(pause_s * random.uniform(0.5, 1), self.limit_s - waited)))
                pause_s = min(2 * pause_s, LONGEST_S)
                continue
            if said_at:
                self.say(f"{what}: works again after {time.monotonic() - began:.0f} s")
            return result

    def _use_the_time(self) -> None:
        work, self.meanwhile = self.meanwhile, None  # it may have to wait itself, but not for itself
        if work is not None:
            try:
                work()
            finally:
                self.meanwhile = work


IMPATIENT = Patience(0.0)
