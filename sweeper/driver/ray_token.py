"""Ray's token: a cluster whose head found one asks for it, and Ray's client shows its own only when it is told to."""

from __future__ import annotations

import os
from pathlib import Path

MODE = "RAY_AUTH_MODE"


def show_token() -> None:
    """Have Ray show the token of this account, if there is one; a cluster that asks for none does not mind.

    Ray looks when it is imported: call this before.
    """
    given = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    if given or Path("~/.ray/auth_token").expanduser().is_file():
        os.environ.setdefault(MODE, "token")
