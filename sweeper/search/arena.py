"""Plays duels of search methods in processes of their own, and goes on where it was stopped."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

import optuna

from sweeper.search.contest import Duel, Score, Scores, fight
from sweeper.search.landscape import Landscape


class Arena:
    """``known`` holds the scores of the duels that were asked for last; all that were ever made are in the file."""

    def __init__(self, landscapes: Sequence[Landscape], path: Path, budget: int, jobs: int) -> None:
        self.landscapes = {landscape.name: landscape for landscape in landscapes}
        self.scores, self.budget, self.jobs = Scores(path), budget, jobs
        self.known: dict[Duel, Score] = {}

    def play(
        self, wanted: Sequence[Duel], tell: Callable[[int, int], None], max_minutes: float | None = None
    ) -> int:
        """Play what has no score yet; ``tell`` hears (done, of). Returns how many were left when the time was over."""
        before = self.scores.read()
        self.known = {d: before[d] for d in wanted if d in before and before[d].budget == self.budget}
        left = [duel for duel in wanted if duel not in self.known]
        until = time.monotonic() + 60 * max_minutes if max_minutes else float("inf")
        running: set[Future[Score]] = set()
        with ProcessPoolExecutor(self.jobs, initializer=_silence) as pool:
            while running or (left and time.monotonic() < until):
                while left and len(running) < 2 * self.jobs and time.monotonic() < until:
                    duel = left.pop(0)
                    running.add(pool.submit(fight, duel, self.landscapes[duel.landscape], self.budget))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    score = future.result()
                    self.scores.add(score)
                    self.known[score.duel] = score
                tell(len(self.known), len(wanted))
        return len(left)


def _silence() -> None:
    """Of a worker: Optuna tells nothing, and Ctrl-C is its parent's."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
