"""How much repeats of a measurement differ for reasons that none of them shows. Pure functions.

A machine has moods that outlast a load's window: neighbours, heat, clocks, memory. All slices of a window share them,
so its own interval is too narrow. What tells is going back: the same prompts at the same load on the same server, other
loads in between. What those visits differ by beyond their own intervals goes into every interval of the study.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sweeper.analysis.intervals import LogEstimate, ratio, unexplained
from sweeper.load.statistics import step_rate
from sweeper.load.window import Stretch, stretches
from sweeper.records import Load, Repeatability, RequestRecord


def repeatability(visits: Mapping[Load, Sequence[RequestRecord]]) -> Repeatability:
    """From several visits to each load; loads that were visited once say nothing."""
    loads = {load: stretches(requests, load) for load, requests in visits.items()}
    closed = unexplained(
        [[step_rate([v]) for v in found] for load, found in loads.items() if not load.open_loop]
    )
    opened = unexplained([[_latency(v) for v in found] for load, found in loads.items() if load.open_loop])
    return Repeatability((closed.error, closed.freedom), (opened.error, opened.freedom))


def _latency(visit: Stretch) -> LogEstimate:
    """Seconds per output token."""
    return ratio([r.e2e_s for r in visit.requests], [r.completion_tokens for r in visit.requests])
