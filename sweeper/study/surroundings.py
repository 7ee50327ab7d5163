"""What a sweep works with: servers to measure on, and somebody to tell; ``actors`` and ``reports`` have them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from sweeper.records import Baseline, BaselineCheck, ConfirmationRound, Hardware, TrialRecord, TrialResult
from sweeper.space import Candidate
from sweeper.speculation import NO_SPECULATION, SpeculationConfig

if TYPE_CHECKING:  # Optuna, pandas and SQLAlchemy, of which a server's actor needs none
    from sweeper.driver.driving import Driver
    from sweeper.storage.stored_trial import Speedups
    from sweeper.trial.order import TrialOrder

NO_CANDIDATE = Candidate(NO_SPECULATION, NO_SPECULATION, ())


@dataclass(frozen=True)
class Glance:
    """What a busy server does right now; rates in output tokens per second, memory of all its GPUs on one node."""

    phase: str
    server: str = ""
    tok_s: float | None = None
    gpu_gib: float | None = None

    def __str__(self) -> str:
        """``measuring concurrency 4, 118 tok/s, 41.2 GiB``"""
        rate = "" if self.tok_s is None else f", {self.tok_s:.0f} tok/s"
        return self.phase + rate + ("" if self.gpu_gib is None else f", {self.gpu_gib:.1f} GiB")


class Servers(Protocol):
    """Where trials run: at most one per server at a time."""

    def hardware(self, kind: str = "") -> Hardware:
        """What all of them run on; ``kind``: the key of what an earlier run of the study measured on."""
        ...

    def idle(self) -> Sequence[str]:
        """Names of the servers that wait for a trial."""
        ...

    def size(self) -> int: ...

    def start(self, tag: str, order: TrialOrder, on: str | None = None) -> None:
        """Run a trial on an idle server, on a certain one if it is named; ``tag`` comes back with the result.

        Raises:
            KeyError: there is no such server (any more).
        """
        ...

    def wait(self, timeout_s: float) -> list[tuple[str, TrialResult]]: ...

    def glances(self) -> Mapping[str, Glance]:
        """What every busy server does right now, by tag."""
        ...

    def interrupt(self) -> None: ...

    def release(self, name: str) -> None:
        """Give a server's processors back for good: nothing is to run on them."""
        ...

    def need(self, count: int) -> None:
        """So many servers have work from here on: no more are started, until more have work."""
        ...

    def dismiss(self, name: str) -> None:
        """Give an idle server's processors back: nothing is left to run on them."""
        ...

    def notices(self) -> Sequence[str]:
        """What a person should know of them since this was asked last."""
        ...


@dataclass(frozen=True)
class Tally:
    """How far a sweep is. ``eta_s`` is None until a trial has finished; ``stage`` says what runs beside the trials."""

    planned: int
    complete: int = 0
    pruned: int = 0
    failed: int = 0
    running: int = 0
    best: tuple[str, float] | None = None
    eta_s: float | None = None
    stage: str = ""


class Display(Protocol):
    """What a person sees while a sweep runs."""

    def baseline(self, baseline: Baseline, how: str) -> None: ...

    def checked(self, check: BaselineCheck, consequence: str) -> None: ...

    def skipped(self, configs: Mapping[SpeculationConfig, str]) -> None: ...

    def finished(self, number: int, record: TrialRecord, speedups: Speedups) -> None: ...

    def confirmed(self, done: ConfirmationRound, of: int) -> None: ...

    def tick(self, tally: Tally, phases: Mapping[str, str]) -> None: ...


@dataclass(frozen=True)
class Surroundings:
    """All that a sweep works with."""

    driver: Driver
    servers: Servers
    display: Display
