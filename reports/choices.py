"""The best config at every load, and the one for all of them."""

from __future__ import annotations

from collections.abc import Sequence

from reports.rows import LoadChoice, SingleChoice, TrialRow
from sweeper.analysis.regret import Curve, best_at, single_best
from sweeper.speculation import NO_SPECULATION


def best_per_load(trials: Sequence[TrialRow], loads: Sequence[str], tie: float) -> list[LoadChoice]:
    """Who wins at each load by the verdict's rule; ``trials`` are those that may win."""
    return [_best(trials, load, tie) for load in loads]


def _best(trials: Sequence[TrialRow], load: str, tie: float) -> LoadChoice:
    """Where some were measured again at a load, only they can be the best there, as in the verdict."""
    confirmed = [trial for trial in trials if (row := trial.at(load)) and row.confirmed]
    best = best_at(load, [_curve(trial) for trial in confirmed or trials], tie)
    if best is None:
        return LoadChoice(load=load, trial=None, config=str(NO_SPECULATION))
    return LoadChoice(
        load=load,
        trial=best.number,
        config=str(best.config),
        speedup=best.speedup,
        confirmed=bool(confirmed),
    )


def single_choice(trials: Sequence[TrialRow], loads: Sequence[str], tie: float) -> SingleChoice | None:
    """The config of least regret over all loads; None where nothing was measured."""
    best = single_best([_curve(trial) for trial in trials], loads, tie)
    if best is None:
        return None
    return SingleChoice(trial=best.number, config=best.config, regrets=dict(best.regrets))


def _curve(trial: TrialRow) -> Curve:
    return Curve(trial.number, trial.config, {row.load: row.best_known for row in trial.loads})
