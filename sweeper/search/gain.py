"""What another launch may gain. Pure functions; speedups as logarithms, normal where they are not known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import LinAlgError, cholesky
from scipy.special import ndtr

from sweeper.analysis.intervals import Array

SAMPLES = 4000
NEAR_BEST = 0.02
JITTERS = (1e-9, 1e-7, 1e-5)


def expected_gain(mean: Array, variance: Array, best: float) -> Array:
    """E[max(0, speedup/best - 1)] [candidates], with ln speedup normal and ``best`` the logarithm of what there is.

    Expected improvement (Jones, Schonlau and Welch 1998) of a log-normal quantity, relative to the best one:
    exp(m - b + v/2)·Φ((m - b)/σ + σ) - Φ((m - b)/σ).
    """
    deviation = np.sqrt(variance)
    ahead = (mean - best) / deviation
    gain: Array = np.exp(mean - best + variance / 2) * ndtr(ahead + deviation) - ndtr(ahead)
    return np.maximum(gain, 0.0)


def expected_gain_beside(
    mean: Array, covariance: Array, running: Sequence[int], best: float, seed: int = 0
) -> Array:
    """The same over what is ``running``, too, which may turn out better [candidates].

    By sampling the joint distribution, so that a candidate whose luck is theirs gains little; ``mean`` [candidates],
    ``covariance`` [candidates, candidates].
    """
    draws = _draws(mean, covariance, seed)
    there = np.maximum(best, draws[:, list(running)].max(axis=1, initial=-np.inf))
    gain: Array = np.expm1(np.maximum(draws - there[:, None], 0.0)).mean(axis=0)
    return gain


def probability_near_best(mean: Array, covariance: Array, chosen: int | None, seed: int = 0) -> float:
    """That ``chosen`` (None: no speculation, whose logarithm is 0) is within NEAR_BEST of the best of all.

    By sampling the joint distribution; ``mean`` [candidates], ``covariance`` [candidates, candidates].
    """
    draws = _draws(mean, covariance, seed)
    best = np.maximum(draws.max(axis=1, initial=-np.inf), 0.0)
    ours = draws[:, chosen] if chosen is not None else np.zeros(SAMPLES)
    return float(np.mean(ours >= best + np.log1p(-NEAR_BEST)))


def _draws(mean: Array, covariance: Array, seed: int) -> Array:
    """[SAMPLES, candidates], antithetic: half of the sampling error goes."""
    half = np.random.default_rng(seed).standard_normal((SAMPLES // 2, len(mean)))
    draws: Array = mean + np.concatenate([half, -half]) @ _root(covariance).T
    return draws


def _root(covariance: Array) -> Array:
    """Lower triangular R with R·Rᵀ = covariance, up to the least jitter that rounding makes necessary."""
    for jitter in JITTERS:
        try:
            root: Array = cholesky(covariance + jitter * np.eye(len(covariance)), lower=True)
            return root
        except LinAlgError:
            continue
    diagonal: Array = np.diag(np.sqrt(np.maximum(np.diag(covariance), 0)))
    return diagonal
