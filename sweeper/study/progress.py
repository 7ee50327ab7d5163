"""How far a sweep is, from its ended trials and what runs now. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from optuna.trial import FrozenTrial, TrialState

from sweeper.study.surroundings import Tally


@dataclass(frozen=True)
class Ended:
    """Trials that ended and say something of their configs. ``seconds``: how long those took that were measured."""

    complete: int = 0
    pruned: int = 0
    failed: int = 0
    seconds: float = 0.0
    best: tuple[str, float] | None = None

    @property
    def trials(self) -> int:
        return self.complete + self.pruned + self.failed

    def and_(self, trial: FrozenTrial, seconds: float) -> Ended:
        """These and one more, and how long it took by a clock that nobody sets."""
        if trial.state == TrialState.FAIL:
            return replace(self, failed=self.failed + 1)
        seconds = self.seconds + seconds
        if trial.state == TrialState.PRUNED:
            return replace(self, pruned=self.pruned + 1, seconds=seconds)
        value, best = trial.value or 0.0, self.best
        if best is None or value > best[1]:
            best = trial.user_attrs["config"], value
        return replace(self, complete=self.complete + 1, seconds=seconds, best=best)


@dataclass(frozen=True)
class Standing:
    """What ended trials do not tell: launches in all, seconds that each running trial took so far, servers."""

    planned: int
    running_s: Sequence[float]
    servers: int
    stage: str = ""


def tally(ended: Ended, now: Standing) -> Tally:
    """The rest is expected to take as long per trial as those that were measured did."""
    eta_s = None
    measured = ended.complete + ended.pruned
    if measured:
        rest_s = (now.planned - ended.trials) * ended.seconds / measured
        eta_s = max(0.0, (rest_s - sum(now.running_s)) / now.servers)
    return Tally(
        now.planned,
        ended.complete,
        ended.pruned,
        ended.failed,
        len(now.running_s),
        best=ended.best,
        eta_s=eta_s,
        stage=now.stage,
    )
