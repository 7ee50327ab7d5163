"""Adds to the report's rows where their time goes, and what those that do not pay lack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reports.rows import BaselineRow, CostRow, LoadRow, StepTimeRow, TrialRow
from sweeper.analysis.shortfall import Measured, shortfall
from sweeper.analysis.step_time import StepTimeModel, TimedConfig, fit_step_time, split_step_time
from sweeper.records import Interval, Load

Models = Mapping[tuple[str, str], StepTimeModel]
"""By algorithm and load."""


def step_time_models(trials: Sequence[TrialRow]) -> Models:
    """One model per algorithm and load at which at least two shapes were measured."""
    timed: dict[tuple[str, str], list[TimedConfig]] = {}
    for trial in trials:
        for row in trial.loads:
            timed.setdefault((trial.config.algorithm, row.load), []).append(_timed(trial, row))
    models = {key: fit_step_time(configs) for key, configs in timed.items()}
    return {key: model for key, model in models.items() if model}


def step_time_rows(models: Models) -> list[StepTimeRow]:
    return [
        StepTimeRow(
            load=load,
            algorithm=algorithm,
            costs=[
                CostRow(term=term, ms=1000 * model.cost(term), interval_ms=_ms(model.interval(term)))
                for term in model.terms
            ],
            separable=model.separable,
            scatter=model.scatter,
            measurements=model.measurements,
        )
        for (algorithm, load), model in models.items()
    ]


def with_analysis(trial: TrialRow, models: Models, baseline: Sequence[BaselineRow]) -> TrialRow:
    """The trial with ``split`` and ``shortfall`` at each of its loads."""
    plain = {row.load: row.step_time_ms / 1000 for row in baseline}
    rows = []
    for row in trial.loads:
        base_s = plain[str(Load.parse(row.load).cold)]
        model = models.get((trial.config.algorithm, row.load))
        split = split_step_time(_timed(trial, row), model, base_s) if model else None
        measured = Measured(trial.config, row.accept_length.value, row.step_time_ms / 1000, base_s)
        rows.append(row.model_copy(update={"split": split, "shortfall": shortfall(measured, split)}))
    return trial.model_copy(update={"loads": rows})


def _timed(trial: TrialRow, row: LoadRow) -> TimedConfig:
    return TimedConfig(trial.config, row.step_time_ms / 1000)


def _ms(interval: Interval | None) -> Interval | None:
    return interval and Interval(1000 * interval.value, 1000 * interval.low, 1000 * interval.high)
