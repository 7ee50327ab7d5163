"""How many torch threads pay right now.

On idle cores two threads are faster than one.  Beside another busy process they wait for each other in
every small product, and a training step can take many times as long.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_MOST = 4  # more never pay at this size
_WORTH = 1.25  # speed-up that more than one thread must show
_SECONDS_BETWEEN = 5.0


class Threads:
    """Chooses the number of threads by timing, again every few seconds."""

    def __init__(self) -> None:
        self._most = min(_MOST, len(os.sched_getaffinity(0)))
        self._next = 0.0

    def adapt(self) -> None:
        """Choose again if the last choice is old; a choice takes about 20 ms."""
        now = time.monotonic()
        if self._most == 1 or now < self._next:
            return
        self._next = now + _SECONDS_BETWEEN
        speed_up = _seconds(1) / _seconds(self._most)
        torch.set_num_threads(self._most if speed_up > _WORTH else 1)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Adapt inside the block and restore the number of threads after it."""
        before = torch.get_num_threads()
        self.adapt()
        try:
            yield
        finally:
            torch.set_num_threads(before)


def _seconds(threads: int) -> float:
    """Time of a few products and sums as they occur in training; the middle one of five."""
    torch.set_num_threads(threads)
    x, weight = torch.ones(1024, 192), torch.ones(192, 512)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        (x @ weight).exp_().sum()
        times.append(time.perf_counter() - start)
    return sorted(times)[2]
