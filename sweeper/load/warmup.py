"""Requests before a load is measured: until compiling, capturing and allocating show no more."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle, islice

from sweeper.config import Measurement
from sweeper.load.generator import LoadRun, Order
from sweeper.load.statistics import require_answers
from sweeper.records import Load, RequestRecord, Warmup
from sweeper.workload.prompts import Prompt

MAX_NEW_TOKENS = 16
"""Steps are what must become steady, and short outputs show many prefills and decodes soon."""


def warm_up(
    send: Callable[[Order], LoadRun], prompts: Sequence[Prompt], load: Load, measurement: Measurement
) -> tuple[Warmup, Mapping[str, tuple[int, ...]]]:
    """Send rounds of requests until two in a row are equally fast; what it took, and the outputs by prompt.

    A round is as many requests as the load keeps in flight, two at least; an open loop is warmed up one by one. Its
    speed is tokens per second and slot. Prompts come again and again: what is cached is flushed afterwards.

    Raises:
        FailedLoadError: a request failed.
    """
    closed = replace(load, rate=0.0, concurrency=max(1, load.concurrency))
    size = max(2, closed.concurrency)
    deck = cycle(replace(prompt, follow_ups=()) for prompt in prompts)
    outputs: dict[str, tuple[int, ...]] = {}
    speeds: list[float] = []
    begun = time.monotonic()
    while True:
        run = send(Order(tuple(islice(deck, size)), closed, least=size, max_new_tokens=MAX_NEW_TOKENS))
        require_answers(run.requests)
        outputs.update(run.outputs)
        speeds.append(_speed(run.requests))
        seconds = time.monotonic() - begun
        steady = len(speeds) > 1 and abs(speeds[-1] / speeds[-2] - 1) <= measurement.warmup_tolerance
        if steady or seconds > measurement.warmup_seconds:
            return Warmup(seconds, size * len(speeds), steady), outputs


def _speed(requests: Sequence[RequestRecord]) -> float:
    return sum(r.completion_tokens for r in requests) / sum(r.e2e_s for r in requests)
