"""How far a sweep is, from its stored trials and what runs now. A pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from optuna.trial import FrozenTrial, TrialState

from sweeper.search.candidates import REQUEUE
from sweeper.surroundings import Tally


@dataclass(frozen=True)
class Standing:
    """What the stored trials do not tell: launches in all, seconds that each running trial took so far, servers."""

    planned: int
    running_s: Sequence[float]
    servers: int
    stage: str = ""


def tally(trials: Sequence[FrozenTrial], now: Standing) -> Tally:
    """The rest is expected to take as long per trial as those that ended did."""
    complete = [t for t in trials if t.state == TrialState.COMPLETE]
    pruned = [t for t in trials if t.state == TrialState.PRUNED]
    failed = [t for t in trials if t.state == TrialState.FAIL and not t.user_attrs.get(REQUEUE)]
    best = max(complete, key=lambda t: t.value or 0.0, default=None)
    durations = [t.duration.total_seconds() for t in (*complete, *pruned) if t.duration]
    eta_s = None
    if durations:
        left = now.planned - len(complete) - len(pruned) - len(failed)
        mean = sum(durations) / len(durations)
        eta_s = max(0.0, (left * mean - sum(now.running_s)) / now.servers)
    return Tally(
        now.planned,
        len(complete),
        len(pruned),
        len(failed),
        len(now.running_s),
        best=(best.user_attrs["config"], best.value or 0.0) if best else None,
        eta_s=eta_s,
        stage=now.stage,
    )
