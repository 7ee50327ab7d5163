"""The part of a load in which it was steady: ramp and drain left out. Pure functions of the requests."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sweeper.records import Load, RequestRecord

SLICES = 20
"""Slices of time that a window is cut into."""


def steady_window(requests: Sequence[RequestRecord], load: Load) -> tuple[float, float]:
    """(start, end) in seconds since the load began; ``requests`` were all answered.

    Closed loop: from the first completed request to the first worker that has no further one. All slots are in use
    throughout, and since it begins and ends with a completion it holds as many prefills as decodes. Open loop: from
    the first request sent to the last one. Where that leaves too little, the whole time.
    """
    sent = sorted(r.sent_s for r in requests)
    done = sorted(r.done_s for r in requests)
    whole = (sent[0], done[-1])
    if load.open_loop:
        # As many tokens must arrive before the last request as would afterwards, or nothing steady was seen.
        early = sum(r.done_s <= sent[-1] for r in requests)
        return (sent[0], sent[-1]) if 2 * early > len(requests) else whole
    # A worker that is idle never comes back: all of them were busy for the last time after this send.
    full = [at for i, at in enumerate(sent, start=1) if i - bisect_right(done, at) == load.concurrency]
    if not full:
        return whole
    end = done[bisect_right(done, full[-1])]
    return (done[0], end) if end > done[0] else whole


@dataclass(frozen=True)
class Stretch:
    """A steady stretch of time and the requests around it; seconds since its visit to the load began."""

    requests: Sequence[RequestRecord]
    start: float
    end: float

    @property
    def window(self) -> tuple[float, float]:
        return self.start, self.end

    @property
    def seconds(self) -> float:
        return self.end - self.start


def stretches(requests: Sequence[RequestRecord], load: Load) -> list[Stretch]:
    """The steady window of each visit to a load."""
    laps = [[r for r in requests if r.lap == lap] for lap in sorted({r.lap for r in requests})]
    return [Stretch(lap, *steady_window(lap, load)) for lap in laps]


def within(request: RequestRecord, window: tuple[float, float]) -> tuple[float, float]:
    """(tokens, seconds) of a request that lie in a window."""
    start, end = window
    tokens = sum(
        n for at, n in zip(request.arrival_s, request.arrival_tokens, strict=True) if start < at <= end
    )
    return float(tokens), max(0.0, min(request.done_s, end) - max(request.sent_s, start))


def steps(request: RequestRecord) -> int:
    """Times the engine ran for a request: the prefill, and a verify round or a token at a time."""
    rounds = request.verify_rounds
    return 1 + (max(0, request.completion_tokens - 1) if rounds is None else rounds)


def step_progress(requests: Sequence[RequestRecord], window: tuple[float, float]) -> NDArray[np.float64]:
    """Steps [SLICES] that all requests made in each of equally long slices of a window.

    A step is spread over the time since the request's last one, so that where a slice is cut makes no difference; a
    batch's tokens arrive all at once. A chunk is one step unless something merges chunks; then a request's steps are
    shared out over its chunks.
    """
    edges = np.linspace(*window, SLICES + 1)
    progress = np.zeros(SLICES + 1)
    for r in requests:
        if r.arrival_s:
            made = np.linspace(0, steps(r), len(r.arrival_s) + 1)
            progress += np.interp(edges, (r.sent_s, *r.arrival_s), made)
    return np.diff(progress)
