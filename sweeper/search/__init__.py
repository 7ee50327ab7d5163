"""Samplers: Optuna's own over the list of valid candidates."""

from sweeper.search.candidates import CandidateSampler, make_sampler

__all__ = ["CandidateSampler", "make_sampler"]
