"""Where the seconds of a verify round go: step time as a linear model of the config's shape. Pure functions.

At one load, for one algorithm, with s steps, topk k and n draft tokens,

    τ = round + step·s + token·n + branch·k·s

``round`` is what every round costs whatever its shape (the target's weights, the draft's extension, scheduling),
``step`` one pass of the draft, ``token`` one more token to verify, ``branch`` one more branch in every draft
step. It does not depend on the draft checkpoint, so all drafts of an algorithm share it.

Measured shapes may not tell the four apart: of chains n = s + 1 and k = 1, so that draft steps and verified
tokens always grow together. Terms are taken in this order as long as each says something that those before it
do not; the cost of one that is left out is in those that are there.

Costs cannot be negative: least squares under that bound (Lawson and Hanson, Solving Least Squares Problems,
chapter 23), on relative errors, since those are what measurements of different length have alike. Their
standard errors are those of ordinary least squares in the costs that are not zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls
from scipy.special import stdtrit

from sweeper.analysis.intervals import UNKNOWN_ERROR, Array, LogEstimate
from sweeper.records import Interval
from sweeper.speculation import SpeculationConfig

TERMS: Mapping[str, Callable[[SpeculationConfig], float]] = {
    "round": lambda config: 1.0,
    "step": lambda config: float(config.num_steps),
    "token": lambda config: float(config.num_draft_tokens),
    "branch": lambda config: float(config.topk * config.num_steps),
}
"""What each cost is multiplied with, in the order in which they are taken."""


@dataclass(frozen=True)
class TimedConfig:
    """A config and its step time in seconds, at one load."""

    config: SpeculationConfig
    step_time_s: float


@dataclass(frozen=True)
class StepTimeModel:
    """Costs in seconds by term, and how sure they are.

    ``covariance`` [terms, terms] is of the costs; ``scatter`` the relative standard deviation of what the model leaves
    unexplained. Both are None where there are no more measurements than costs (``freedom`` 0).
    """

    terms: tuple[str, ...]
    costs: tuple[float, ...]
    covariance: tuple[tuple[float, ...], ...] | None
    scatter: float | None
    freedom: int
    measurements: int

    @property
    def separable(self) -> bool:
        """Whether drafting can be told from verifying; not where only chains were measured."""
        return "token" in self.terms

    def cost(self, term: str) -> float:
        """Seconds; 0 for a term that is contained in others."""
        return dict(zip(self.terms, self.costs, strict=True)).get(term, 0.0)

    def interval(self, term: str) -> Interval | None:
        """The cost with its 95 % interval; None where nothing is known of its error."""
        if self.covariance is None or term not in self.terms:
            return None
        at = self.terms.index(term)
        reach = float(stdtrit(self.freedom, 0.975)) * math.sqrt(self.covariance[at][at])
        return Interval(self.costs[at], max(0.0, self.costs[at] - reach), self.costs[at] + reach)

    def step_time(self, config: SpeculationConfig) -> LogEstimate:
        """What a config's verify round takes, in seconds, with the error of the model's costs."""
        row = _row(config, self.terms)
        value = float(row @ np.array(self.costs))
        if self.covariance is None or value <= 0:
            return LogEstimate(value, UNKNOWN_ERROR, 1.0)
        error = math.sqrt(float(row @ np.array(self.covariance) @ row)) / value
        return LogEstimate(value, error, float(self.freedom))


def fit_step_time(timed: Sequence[TimedConfig]) -> StepTimeModel | None:
    """The costs that explain the measured step times best; None for fewer than two different shapes."""
    terms = _identifiable(timed)
    if len(terms) < 2:
        return None
    taus = np.array([one.step_time_s for one in timed])
    design = np.array([_row(one.config, terms) for one in timed]) / taus[:, None]
    costs, residual = nnls(design, np.ones(len(timed)))
    active = costs > 0
    freedom = len(timed) - int(active.sum())
    covariance = scatter = None
    if freedom > 0:
        scatter = float(residual) / math.sqrt(freedom)
        inverse = np.linalg.inv(design[:, active].T @ design[:, active])
        full = np.zeros((len(terms), len(terms)))
        full[np.ix_(active, active)] = scatter**2 * inverse
        covariance = tuple(tuple(float(cell) for cell in row) for row in full)
    return StepTimeModel(
        terms, tuple(float(cost) for cost in costs), covariance, scatter, freedom, len(timed)
    )


def _identifiable(timed: Sequence[TimedConfig]) -> tuple[str, ...]:
    """The terms that these shapes can tell apart."""
    found: tuple[str, ...] = ()
    for term in TERMS:
        design = np.array([_row(one.config, (*found, term)) for one in timed])
        if len(timed) and np.linalg.matrix_rank(design) > len(found):
            found = (*found, term)
    return found


def _row(config: SpeculationConfig, terms: Sequence[str]) -> Array:
    return np.array([TERMS[term](config) for term in terms])


@dataclass(frozen=True)
class StepTimeSplit:
    """Where the seconds of a config's verify round go.

    ``target_s`` is a round of the plain server, ``overhead_s`` what speculating costs whatever the shape,
    ``drafting_s`` and ``verifying_s`` what grows with it; ``together_s`` stands for these two where they
    cannot be told apart. ``unexplained_s`` is what was measured beyond the model; it may be negative.
    """

    target_s: float
    overhead_s: float
    drafting_s: float | None
    verifying_s: float | None
    together_s: float | None
    unexplained_s: float


def split_step_time(timed: TimedConfig, model: StepTimeModel, baseline_step_time_s: float) -> StepTimeSplit:
    """Take a config's step time apart, given what a token takes without speculation.

    A plain round verifies one token; every token beyond it is speculation's.
    """
    config = timed.config
    fixed = model.cost("round") + model.cost("token")
    overhead = max(0.0, fixed - baseline_step_time_s)
    drafting = model.cost("step") * config.num_steps + model.cost("branch") * config.topk * config.num_steps
    verifying = model.cost("token") * (config.num_draft_tokens - 1)
    explained = baseline_step_time_s + overhead + drafting + verifying
    return StepTimeSplit(
        target_s=baseline_step_time_s,
        overhead_s=overhead,
        drafting_s=drafting if model.separable else None,
        verifying_s=verifying if model.separable else None,
        together_s=None if model.separable else drafting,
        unexplained_s=timed.step_time_s - explained,
    )
