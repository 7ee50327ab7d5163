"""``${NAME}`` and ``${NAME:-default}`` in a study file."""

from __future__ import annotations

import os
import re

from sweeper.testbed.environment import cache_dir

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}")
"""A reference: the variable's name, and its default or None."""


def expand(text: str, environment: dict[str, str] | None = None) -> str:
    """Replace references by environment variables.

    ``SWEEPER_TESTBED`` is always known: the directory of the CPU test bed's models.

    Raises:
        KeyError: a variable is neither set nor has a default.
    """
    known = {"SWEEPER_TESTBED": str(cache_dir())} | (dict(os.environ) if environment is None else environment)

    def value(match: re.Match[str]) -> str:
        name, default = match.groups()
        return known[name] if default is None else known.get(name, default)

    return VARIABLE.sub(value, text)
