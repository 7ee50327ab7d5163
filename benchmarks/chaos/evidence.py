"""What is known of a study that was driven through chaos: what was done to it, and what is there at its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

SERVER, ACTOR, RAYLET, DRIVER = "server", "actor", "raylet", "driver"
VICTIMS = (SERVER, ACTOR, RAYLET, DRIVER)


@dataclass(frozen=True)
class Strike:
    """One SIGKILL: when, whom, and the configs whose servers died of it ("" for the server without speculation)."""

    at: datetime
    victim: str
    configs: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrialSeen:
    """A trial as the storage has it. ``requeued``: it says nothing of its config. ``failure`` is its class, or "".

    ``missing`` names those of its raw files that are not in the run directory.
    """

    number: int
    config: str
    state: str
    began: datetime
    ended: datetime | None
    requeued: bool = False
    failure: str = ""
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """``wanted``: all effective configs; ``broken``: those that fail by themselves, with their class.

    ``announced``: trials that a driver said were done; ``journals``: trials whose result lies in the run directory and
    was complete. ``given_up``: what drivers said that ended though nobody killed them. The last four: what is left.
    """

    wanted: frozenset[str]
    broken: dict[str, str]
    trials: tuple[TrialSeen, ...]
    strikes: tuple[Strike, ...]
    announced: frozenset[int] = frozenset()
    journals: frozenset[int] = frozenset()
    given_up: tuple[str, ...] = ()
    processes: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    files: tuple[str, ...] = ()
    locks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """One seed's row of the table."""

    seed: int
    wall_s: float
    drivers: int
    strikes: dict[str, int]
    ended: dict[str, int]
    requeued: int
    problems: tuple[str, ...] = field(default_factory=tuple)
