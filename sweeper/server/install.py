"""The SGLang installation that the engine's Python interpreter sees."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache

from sweeper.errors import SweeperError


@lru_cache(maxsize=16)
def installed_version(python: str | None = None) -> str:
    """SGLang's version in an interpreter (default: the running one), e.g. ``0.5.23``.

    Raises:
        SweeperError: the interpreter cannot be run or has no SGLang.
    """
    interpreter = python or sys.executable
    code = "import importlib.metadata as m; print(m.version('sglang'))"
    try:
        done = subprocess.run([interpreter, "-c", code], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SweeperError(f"engine.python: cannot run {interpreter}: {error}") from None
    if done.returncode:
        raise SweeperError(
            f"SGLang is not installed for {interpreter}; install it there or set engine.python "
            "to the interpreter that has it (on a machine without a GPU: make setup)"
        )
    return done.stdout.strip()


def release(version: str) -> tuple[int, ...]:
    """``0.5.10.post1`` -> (0, 5, 10): comparable, post releases and suffixes left out.

    >>> release("0.5.10.post1") < release("0.5.21")
    True
    """
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
