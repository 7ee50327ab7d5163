"""The environment of an exported server: literal values as they are, everything else by reference only.

``engine.env`` of a study file may name variables of the machine, ``${HF_TOKEN}``; their values are known to nobody
here and must not be. An export takes them from where its platform keeps secrets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from sweeper.secrets import is_secret_name
from sweeper.study_file.variables import VARIABLE

HUB_TOKEN = "HF_TOKEN"


@dataclass(frozen=True)
class Reference:
    """``${NAME}`` in a value."""

    name: str


@dataclass(frozen=True)
class Variable:
    """An environment variable; ``optional``: the server starts without it, too."""

    name: str
    parts: tuple[str | Reference, ...]
    optional: bool = False

    @property
    def references(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts if isinstance(part, Reference))


def variables(environment: Mapping[str, str], checkpoints: list[str]) -> tuple[Variable, ...]:
    """Of ``engine.env``; and the hub's token where a checkpoint comes from there."""
    found = [Variable(name, tuple(_parts(value))) for name, value in environment.items()]
    from_hub = [path for path in checkpoints if not PurePosixPath(path).is_absolute()]
    if from_hub and HUB_TOKEN not in environment:
        found.append(Variable(HUB_TOKEN, (Reference(HUB_TOKEN),), optional=True))
    return tuple(found)


def _parts(value: str) -> list[str | Reference]:
    """``a${B}c`` -> ["a", Reference("B"), "c"]; a default stands for a variable that is no secret."""
    parts: list[str | Reference] = []
    end = 0
    for match in VARIABLE.finditer(value):
        name, default = match.groups()
        parts.append(value[end : match.start()])
        parts.append(Reference(name) if default is None or is_secret_name(name) else default)
        end = match.end()
    parts.append(value[end:])
    return [part for part in parts if part] or [""]
