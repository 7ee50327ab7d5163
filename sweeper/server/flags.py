"""The flags that an installed SGLang takes, from its own ``--help``; and names that moved between releases."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from sweeper.errors import SweeperError

RENAMED = (
    ("cuda-graph-max-bs-decode", "cuda-graph-max-bs"),  # 0.5.14; the old name is gone since 0.5.21
    ("cuda-graph-bs-decode", "cuda-graph-bs"),
    ("incremental-streaming-output", "stream-output"),  # 0.5.10; gone since 0.5.21
    ("speculative-draft-window-size", "speculative-dflash-draft-window-size"),  # 0.5.12; gone since 0.5.21
)
"""Spellings of the same flag, newest first."""

_OPTION = re.compile(r"^  (-\S.*)$", re.MULTILINE)
_NAME = re.compile(r"(?<![\w-])--([A-Za-z0-9][\w-]*)")
_CHOICES = re.compile(r"\{([^}]*)\}")


@dataclass(frozen=True)
class FlagTable:
    """Every flag of one SGLang installation, without its dashes, and the values of those with a closed choice."""

    names: frozenset[str]
    choices: Mapping[str, tuple[str, ...]]

    def spell(self, name: str) -> str:
        """This installation's spelling of a flag.

        Raises:
            UnknownFlagError: it has none; the message holds the nearest match.
        """
        for spelling in (name, *spellings(name)):
            if spelling in self.names:
                return spelling
        near = get_close_matches(name, sorted(self.names), 1, 0.6)
        raise UnknownFlagError(name, near[0] if near else None)

    def check_value(self, name: str, value: object) -> None:
        """Raises SweeperError where a flag with a closed choice gets something else."""
        allowed = self.choices.get(name)
        for item in value if isinstance(value, list) else [value]:
            if allowed and not isinstance(item, bool) and str(item) not in allowed:
                near = get_close_matches(str(item), allowed, 1, 0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(allowed)}"
                raise SweeperError(f"flag --{name} of this SGLang does not take {item!r}; {hint}")


class UnknownFlagError(SweeperError):
    """This SGLang has no flag of that name."""

    def __init__(self, name: str, nearest: str | None) -> None:
        self.name, self.nearest = name, nearest
        hint = f"; did you mean {nearest!r}?" if nearest else "; see python -m sglang.launch_server --help"
        super().__init__(f"this SGLang has no flag --{name}{hint}")


def spellings(name: str) -> tuple[str, ...]:
    """All names that a flag ever had, newest first; empty for a flag that was never renamed."""
    return next((names for names in RENAMED if name in names), ())


def normalised(name: str) -> str:
    """``--mem_fraction_static`` -> ``mem-fraction-static``"""
    return name.lstrip("-").replace("_", "-")


def parse_help(text: str) -> FlagTable:
    """What argparse prints for ``--help``: one line per option at an indent of two, its help further in."""
    names: set[str] = set()
    choices: dict[str, tuple[str, ...]] = {}
    for invocation in (re.split(r"\s{2,}", line)[0] for line in _OPTION.findall(text)):
        own = _NAME.findall(invocation)
        names.update(own)
        closed = _CHOICES.search(invocation)
        if closed:
            choices.update(dict.fromkeys(own, tuple(closed.group(1).split(","))))
    return FlagTable(frozenset(names), choices)
