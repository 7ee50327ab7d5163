"""Samplers over the list of valid candidates: Optuna's own, and one that knows how speculation works."""

from sweeper.search.candidates import CandidateSampler
from sweeper.search.samplers import make_sampler

__all__ = ["CandidateSampler", "make_sampler"]
