"""What a config that does not pay lacks: acceptance, or a cheaper draft. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.optimize import brentq

from sweeper.acceptance import expected_accept_length
from sweeper.analysis.step_time import StepTimeSplit
from sweeper.speculation import SpeculationConfig


@dataclass(frozen=True)
class Measured:
    """A config at one load: accept length, step time, and the baseline's step time there, in seconds."""

    config: SpeculationConfig
    accept_length: float
    step_time_s: float
    baseline_step_time_s: float


@dataclass(frozen=True)
class Shortfall:
    """What would make a config pay, each alone.

    Either it accepts more: ``needed_accept_length`` tokens per round, for a chain the conditional acceptance
    ``needed_acceptance`` at every position (None: not even a draft that is always right would do, or it is a
    tree). Or its round is shorter: ``needed_step_time_s`` seconds, for which drafting may cost
    ``draft_cost_share`` of what it does (None: even a draft that costs nothing would not do, or drafting
    could not be told from verifying).
    """

    needed_accept_length: float
    needed_acceptance: float | None
    needed_step_time_s: float
    draft_cost_share: float | None


def shortfall(measured: Measured, split: StepTimeSplit | None = None) -> Shortfall | None:
    """None where the config pays: A > τ/τ_base."""
    needed = measured.step_time_s / measured.baseline_step_time_s
    if measured.accept_length > needed:
        return None
    allowed_s = measured.accept_length * measured.baseline_step_time_s
    chain = measured.config.topk == 1
    return Shortfall(
        needed_accept_length=needed,
        needed_acceptance=needed_acceptance(needed, measured.config.num_steps) if chain else None,
        needed_step_time_s=allowed_s,
        draft_cost_share=_draft_cost_share(allowed_s, measured.step_time_s, split),
    )


def needed_acceptance(accept_length: float, num_steps: int) -> float | None:
    """The conditional acceptance, the same at every position, that gives a chain an accept length: 1 + Σ p^i = A.

    None where it is longer than the chain with its bonus token.

    >>> round(needed_acceptance(1.75, 2), 6)
    0.5
    """
    if accept_length > num_steps + 1:
        return None
    return float(brentq(lambda p: expected_accept_length([p] * num_steps) - accept_length, 0.0, 1.0))


def _draft_cost_share(allowed_s: float, step_time_s: float, split: StepTimeSplit | None) -> float | None:
    if split is None or not split.drafting_s:
        return None
    left = split.drafting_s - (step_time_s - allowed_s)
    return left / split.drafting_s if left >= 0 else None
