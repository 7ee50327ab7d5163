"""What a build shows while it runs: a bar with the time left, or a plain line every few seconds."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sweeper.testbed.recipe import Recipe, Training

_SECONDS_BETWEEN_LINES = 5.0


class Show(Protocol):
    """Takes the share of the work done (0 to 1), the seconds left (None: not known yet) and a text."""

    def __call__(self, share: float, seconds_left: float | None, text: str) -> None: ...


class Work:
    """Turns steps of the phases into a share of the whole work and the time left.

    The unit is a CPU-second of a machine with 60 Gflop/s per core; only the proportions matter.
    """

    def __init__(self, recipe: Recipe, show: Show) -> None:
        self._recipe, self._show = recipe, show
        self._totals = {"corpus": 14.0} | {
            phase: self._up_to(phase, getattr(recipe, phase).steps)
            for phase in ("target", "eagle3", "standalone")
        }
        self._start = time.monotonic()

    def report(self, phase: str, step: int, loss: float) -> None:
        """After ``step`` steps of ``phase``."""
        steps = getattr(self._recipe, phase).steps
        self._update(phase, self._up_to(phase, step), f"{phase}: step {step}/{steps}, loss {loss:.2f}")

    def begin(self, phase: str) -> None:
        """At the begin of ``phase``."""
        self._update(phase, 0.0, phase)

    def finish(self) -> None:
        """At the end of everything."""
        self._show(1.0, 0.0, "done")

    def _update(self, phase: str, done_in_phase: float, text: str) -> None:
        phases = list(self._totals)
        before = sum(self._totals[name] for name in phases[: phases.index(phase)])
        share = (before + done_in_phase) / sum(self._totals.values())
        elapsed = time.monotonic() - self._start
        self._show(share, elapsed * (1 - share) / share if share > 0.02 else None, text)

    def _up_to(self, phase: str, steps: int) -> float:
        """Work of the first ``steps`` steps: forward and backward passes of all layers involved."""
        recipe = self._recipe
        training: Training = getattr(recipe, phase)
        kilotokens = training.batch * training.length / 1024
        if phase != "target":  # the target only runs forward
            return steps * kilotokens * (0.018 * recipe.layers + 0.35)
        bounds = [int(share * training.steps) for share in recipe.grow_at]
        work = 0.0
        for step in range(steps):
            layers = recipe.layers >> sum(step < bound for bound in bounds)
            work += kilotokens * (0.055 * layers + 0.06) + 0.012 * layers
        return work


@contextmanager
def shown() -> Iterator[Show]:
    """A bar when standard error is a terminal, else plain lines; both on standard error."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines()
        return
    columns = ("[progress.description]{task.description}", "{task.percentage:>3.0f} %", "{task.fields[left]}")
    with Progress(
        TextColumn("test bed"), BarColumn(), *map(TextColumn, columns), TimeElapsedColumn(), console=console
    ) as bar:
        task = bar.add_task("", total=1.0, left="")

        def show(share: float, seconds_left: float | None, text: str) -> None:
            bar.update(task, completed=share, description=text, left=_left(seconds_left))

        yield show


class _Lines:
    """At most one line every few seconds, and always the last."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, share: float, seconds_left: float | None, text: str) -> None:
        now = time.monotonic()
        if now >= self._next or share >= 1:
            self._next = now + _SECONDS_BETWEEN_LINES
            parts = [f"test bed {share:4.0%}", text, _left(seconds_left)]
            print("  ".join(part for part in parts if part), file=sys.stderr, flush=True)


def _left(seconds: float | None) -> str:
    return "" if not seconds else f"{int(seconds) // 60}:{int(seconds) % 60:02d} left"
