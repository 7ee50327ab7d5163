"""How far a sweep is, from its ended trials and what runs now. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from optuna.trial import FrozenTrial, TrialState

from sweeper.study.surroundings import Tally


@dataclass(frozen=True)
class Ended:
    """Trials that ended and say something of their configs; how long those took to start and to measure that were."""

    complete: int = 0
    pruned: int = 0
    failed: int = 0
    start_s: float = 0.0
    measure_s: float = 0.0
    launch_start_s: float = 0.0
    """Of ``start_s``, what the ``launches`` took, without trials on servers that ran already."""
    launches: int = 0
    best: tuple[str, float] | None = None

    @property
    def trials(self) -> int:
        return self.complete + self.pruned + self.failed

    def and_(self, trial: FrozenTrial, start_s: float, measure_s: float, launched: bool = True) -> Ended:
        """These and one more, and how long it took by a clock that nobody sets."""
        if trial.state == TrialState.FAIL:
            return replace(self, failed=self.failed + 1)
        longer = replace(
            self,
            start_s=self.start_s + start_s,
            measure_s=self.measure_s + measure_s,
            launch_start_s=self.launch_start_s + launched * start_s,
            launches=self.launches + launched,
        )
        if trial.state == TrialState.PRUNED:
            return replace(longer, pruned=self.pruned + 1)
        value, best = trial.value or 0.0, self.best
        if best is None or value > best[1]:
            best = trial.user_attrs["config"], value
        return replace(longer, complete=self.complete + 1, best=best)

    def trial_s(self) -> float | None:
        """What a trial takes; None while nothing is known of that."""
        measured = self.complete + self.pruned
        return (self.start_s + self.measure_s) / measured if measured else None

    def launch_s(self, share: float) -> float | None:
        """What a launch takes that measures this share of the loads; None while nothing is known of that."""
        measured = self.complete + self.pruned
        if not measured or not self.launches:
            return None
        return self.launch_start_s / self.launches + share * self.measure_s / measured


@dataclass(frozen=True)
class Later:
    """Launches that follow the trials, one after another, the running one included, which has taken ``spent_s``.

    ``share``: of the loads that each measures.
    """

    launches: int = 0
    share: float = 1.0
    spent_s: float = 0.0


@dataclass(frozen=True)
class Standing:
    """What ended trials do not tell: launches in all, seconds that each running trial took so far, servers."""

    planned: int
    running_s: Sequence[float]
    servers: int
    stage: str = ""
    later: Later = Later()


def tally(ended: Ended, now: Standing) -> Tally:
    """The rest is expected to take as long per launch as the trials that were measured did."""
    eta_s, each_s, later_s = None, ended.trial_s(), ended.launch_s(now.later.share)
    if each_s is not None and later_s is not None:
        trials_s = (now.planned - ended.trials) * each_s - sum(now.running_s)
        later_s = now.later.launches * later_s - now.later.spent_s
        eta_s = max(0.0, trials_s) / now.servers + max(0.0, later_s)
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
