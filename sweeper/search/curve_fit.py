"""Bayesian regression of a positive quantity on configs: a curve with few parameters, and what it cannot express.

log y(x) = f(x, θ_g(x)) + d(x) + noise, where the parameters of a draft's group g are θ_g = θ0 + a shared part + the
algorithm's own + the draft's own, all independent normal, and d is a Gaussian process over the configs' place (depth,
width and branches in doublings). f is linearised where the posterior has its mode, which Gauss and Newton's method
finds in the space of observations: all that is solved is one positive definite system with a row per observation
(Rasmussen and Williams, Gaussian Processes for Machine Learning, chapter 2.7 for the linear part; Tarantola, Inverse
Problem Theory, chapter 3.2 for the iteration).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist

from sweeper.analysis.intervals import Array
from sweeper.search.rows import Indices, Rows

ITERATIONS = 15
LARGEST_MOVE = 1.0
"""Of a parameter in one iteration: far from the mode, the linearised curve promises too much."""
DERIVATIVE_STEP = 1e-4
SCALES = (1.0, 0.5, 2.0, 3.0)
LEAST_TO_SCALE = 3
ROUGH_REACH = 0.2

Formula = Callable[[Rows, Array, Array], Array]
"""log y [rows] of rows, their parameters [rows, parameters] and what else the formula needs of each row [rows]."""


@dataclass(frozen=True)
class Curve:
    """A formula and what is known of it beforehand; all [parameters] but ``discrepancy``.

    ``shared``, ``by_algorithm`` and ``by_draft`` are standard deviations. ``discrepancy``: standard deviation of log y
    around the formula; ``own`` is the share of its variance that drafts do not have in common.
    """

    formula: Formula
    start: Array
    shared: Array
    by_algorithm: Array
    by_draft: Array
    discrepancy: float
    own: float
    reach: Array
    """Doublings [3] after which the discrepancy is another one."""
    rough: float
    """Share of its variance that ends after ROUGH_REACH of that: tiles, graph sizes, quirks of single configs."""


@dataclass(frozen=True)
class Observations:
    """What is known of some rows: log y, its standard deviation, and the formula's extra input; all [rows]."""

    rows: Rows
    value: Array
    error: Array
    extra: Array


class CurveFit:
    """The posterior of a curve; ``seen`` may have no rows, which leaves the prior."""

    def __init__(self, curve: Curve, seen: Observations) -> None:
        self.curve, self.seen = curve, seen
        self._weights = np.zeros(len(seen.rows))
        self._slopes = np.zeros((len(seen.rows), len(curve.start)))
        if len(seen.rows):
            self._find_mode()

    def parameters(self, rows: Rows) -> Array:
        """Where the posterior of each row's parameters has its mode [rows, parameters]."""
        moved = np.tile(self.curve.start, (len(rows), 1))
        if len(self.seen.rows):
            pull = self._slopes * self._weights[:, None]
            moved += self.curve.shared**2 * pull.sum(axis=0)
            moved += self.curve.by_algorithm**2 * (_equal(rows.algorithm, self.seen.rows.algorithm) @ pull)
            moved += self.curve.by_draft**2 * (_equal(rows.group, self.seen.rows.group) @ pull)
        return moved

    def mean(self, rows: Rows, extra: Array) -> Array:
        """log y [rows]."""
        value: Array = self.curve.formula(rows, self.parameters(rows), extra)
        return value + self._discrepancy(rows, self.seen.rows) @ self._weights

    def whitened(self, rows: Rows, extra: Array) -> tuple[Array, Array]:
        """Slopes [rows, parameters] and how rows hang together with what was seen [rows, seen]."""
        slopes = self._slopes_of(rows, extra)
        return slopes, self._covariance(rows, slopes, self.seen.rows, self._slopes)

    def variance(self, rows: Rows, extra: Array) -> Array:
        """Of log y [rows], without the noise of measuring it."""
        slopes, cross = self.whitened(rows, extra)
        curve = self.curve
        total = curve.shared**2 + curve.by_algorithm**2 + curve.by_draft**2
        prior = slopes**2 @ total + curve.discrepancy**2
        if not len(self.seen.rows):
            return prior
        known = np.einsum("ij,ji->i", cross, cho_solve(self._factor, cross.T))
        return np.asarray(np.maximum(prior - known, 1e-12))

    def covariance(self, rows: Rows, extra: Array) -> Array:
        """Of log y [rows, rows]."""
        slopes, cross = self.whitened(rows, extra)
        prior: Array = self._covariance(rows, slopes, rows, slopes)
        known: Array = (
            cross @ cho_solve(self._factor, cross.T) if len(self.seen.rows) else np.zeros(prior.shape)
        )
        return prior - known

    def evidence(self) -> float:
        """Log of the density of what was seen, up to a constant; the formula linearised at the mode."""
        if not len(self.seen.rows):
            return 0.0
        spread = np.log(np.diag(self._factor[0])).sum()
        return -0.5 * float(self._residual @ self._weights) - float(spread)

    def surprise(self) -> float:
        """Mean squared standardised residual of what was seen under the prior; about 1 where the prior is right."""
        residual = self.seen.value - self.curve.formula(
            self.seen.rows, np.tile(self.curve.start, (len(self.seen.rows), 1)), self.seen.extra
        )
        return float(residual @ cho_solve(self._factor, residual)) / len(residual)

    def _find_mode(self) -> None:
        seen, curve = self.seen, self.curve
        theta = self.parameters(seen.rows)
        own = self._discrepancy(seen.rows, seen.rows) + np.diag(seen.error**2)
        for _ in range(ITERATIONS):
            self._slopes = self._slopes_at(seen.rows, theta, seen.extra)
            linear = self._linear(seen.rows, self._slopes, seen.rows, self._slopes)
            self._factor = cho_factor(linear + own, lower=True)
            moved = np.sum(self._slopes * (theta - curve.start), axis=1)
            residual = seen.value - curve.formula(seen.rows, theta, seen.extra) + moved
            self._weights, self._residual = cho_solve(self._factor, residual), residual
            move = self.parameters(seen.rows) - theta
            theta = theta + np.clip(move, -LARGEST_MOVE, LARGEST_MOVE)
            if np.abs(move).max() < 1e-3:
                break

    def _slopes_of(self, rows: Rows, extra: Array) -> Array:
        return self._slopes_at(rows, self.parameters(rows), extra)

    def _slopes_at(self, rows: Rows, theta: Array, extra: Array) -> Array:
        """∂f/∂θ [rows, parameters]."""
        formula = self.curve.formula
        slopes = np.empty_like(theta)
        for p in range(theta.shape[1]):
            step = np.zeros(theta.shape[1])
            step[p] = DERIVATIVE_STEP
            above, below = formula(rows, theta + step, extra), formula(rows, theta - step, extra)
            slopes[:, p] = (above - below) / (2 * DERIVATIVE_STEP)
        return slopes

    def _covariance(self, a: Rows, a_slopes: Array, b: Rows, b_slopes: Array) -> Array:
        """Prior covariance of log y [a, b]."""
        return self._linear(a, a_slopes, b, b_slopes) + self._discrepancy(a, b)

    def _linear(self, a: Rows, a_slopes: Array, b: Rows, b_slopes: Array) -> Array:
        """The part of it that the parameters' covariance makes [a, b]."""
        curve = self.curve
        linear: Array = (a_slopes * curve.shared**2) @ b_slopes.T
        linear += _equal(a.algorithm, b.algorithm) * ((a_slopes * curve.by_algorithm**2) @ b_slopes.T)
        linear += _equal(a.group, b.group) * ((a_slopes * curve.by_draft**2) @ b_slopes.T)
        return linear

    def _discrepancy(self, a: Rows, b: Rows) -> Array:
        curve = self.curve
        squares = cdist(a.place / curve.reach, b.place / curve.reach, "sqeuclidean")
        same = 1.0 - curve.own * (1.0 - _equal(a.group, b.group))
        smooth, rough = np.exp(-0.5 * squares), np.exp(-0.5 * squares / ROUGH_REACH**2)
        kernel: Array = curve.discrepancy**2 * same * ((1 - curve.rough) * smooth + curve.rough * rough)
        return kernel


def _equal(a: Indices, b: Indices) -> Array:
    """1.0 where the numbers of two rows are the same [a, b]."""
    same: Array = (a[:, None] == b[None, :]).astype(float)
    return same


def fit(curve: Curve, seen: Observations) -> CurveFit:
    """The fit whose discrepancy explains best what was seen: the curve's own, half of it, or a multiple."""
    if len(seen.rows) < LEAST_TO_SCALE:
        return CurveFit(curve, seen)
    fits = [CurveFit(replace(curve, discrepancy=curve.discrepancy * scale), seen) for scale in SCALES]
    scores = [f.evidence() - 0.5 * (np.log(scale) / 0.7) ** 2 for f, scale in zip(fits, SCALES, strict=True)]
    return fits[int(np.argmax(scores))]
