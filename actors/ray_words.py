"""Ray's errors in words that may leave this process: short, and without secrets.

Ray quotes what the failed process said, and the command lines and environments that it said it with.
"""

from __future__ import annotations

import os

from ray.exceptions import RayTaskError

from sweeper.secrets import Redactor, secrets_of

LINE, TEXT = 500, 5000
"""Characters that are kept."""


def said(error: Exception) -> str:
    """The first line of an error, or of what a task raised, without the secrets that this process knows."""
    lines = quoted(error).splitlines()
    return lines[0][:LINE] if lines else type(error).__name__


def quoted(error: Exception) -> str:
    """All of it."""
    told = error.cause if isinstance(error, RayTaskError) else error
    return Redactor(secrets_of(os.environ))(str(told).strip())[:TEXT]
