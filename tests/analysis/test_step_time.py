"""Where a verify round's time goes: costs of shapes with known answers."""

from __future__ import annotations

import random

import pytest

from sweeper.analysis.step_time import StepTimeModel, TimedConfig, fit_step_time, split_step_time
from sweeper.speculation import SpeculationConfig


def config(steps: int, topk: int, tokens: int) -> SpeculationConfig:
    return SpeculationConfig("EAGLE3", "a", steps, topk, tokens)


CHAINS = [config(s, 1, s + 1) for s in (1, 3, 7, 15)]
TREES = [config(s, k, n) for s, k, n in ((3, 2, 6), (4, 4, 12), (5, 4, 24), (3, 4, 8))]


def timed(configs: list[SpeculationConfig], noise: float = 0.0) -> list[TimedConfig]:
    """ms: 10 a round, 1 a draft step, 0.5 a token, 0.25 a branch."""
    chance = random.Random(1)
    return [
        TimedConfig(
            c,
            1e-3
            * (10 + c.num_steps + 0.5 * c.num_draft_tokens + 0.25 * c.topk * c.num_steps)
            * (1 + noise * chance.gauss(0, 1)),
        )
        for c in configs
    ]


def fitted(configs: list[SpeculationConfig], noise: float = 0.0) -> StepTimeModel:
    model = fit_step_time(timed(configs, noise))
    assert model is not None
    return model


def test_chains_and_trees_together_tell_all_four_costs() -> None:
    model = fitted(CHAINS + TREES)
    assert model.separable
    costs = {term: 1000 * model.cost(term) for term in model.terms}
    assert costs == pytest.approx({"round": 10, "step": 1, "token": 0.5, "branch": 0.25})


def test_chains_alone_cannot_tell_drafting_from_verifying() -> None:
    model = fitted(CHAINS)
    assert not model.separable
    # 10 + 0.5 for the first token; each step adds 1 + 0.5 + 0.25
    assert 1000 * model.cost("round") == pytest.approx(10.5)
    assert 1000 * model.cost("step") == pytest.approx(1.75)
    split = split_step_time(timed(CHAINS)[1], model, 0.009)
    assert (split.drafting_s, split.verifying_s) == (None, None)
    assert split.together_s == pytest.approx(3 * 0.00175)
    assert split.overhead_s == pytest.approx(0.0015)


def test_a_round_is_taken_apart_without_a_rest() -> None:
    """4/4/12, ms: 4 steps 4 + 16 branches 4 = 8 drafting, 11 tokens 5.5, 10.5 - 9 = 1.5 overhead, 9 the target."""
    model = fitted(CHAINS + TREES)
    split = split_step_time(timed(TREES)[1], model, 0.009)
    assert split.drafting_s == pytest.approx(0.008)
    assert split.verifying_s == pytest.approx(0.0055)
    assert split.overhead_s == pytest.approx(0.0015)
    assert split.target_s == 0.009
    assert split.unexplained_s == pytest.approx(0, abs=1e-12)


def test_noise_shows_in_the_intervals_which_hold_the_truth() -> None:
    model = fitted(CHAINS + TREES + TREES, noise=0.02)
    assert model.scatter is not None
    assert 0.005 < model.scatter < 0.04
    for term, truth in (("round", 0.010), ("step", 0.001), ("token", 0.0005)):
        interval = model.interval(term)
        assert interval is not None
        assert interval.low <= truth <= interval.high
    predicted = model.step_time(config(6, 2, 10)).interval
    assert predicted.low < 1e-3 * (10 + 6 + 5 + 3) < predicted.high


def test_no_cost_is_negative() -> None:
    """Longer chains that happened to be faster."""
    model = fit_step_time([TimedConfig(c, 0.010 - 0.0001 * c.num_steps) for c in CHAINS])
    assert model is not None
    assert model.cost("step") == 0


def test_as_many_measurements_as_costs_say_nothing_of_the_error() -> None:
    model = fitted(CHAINS[:2])
    assert model.freedom == 0
    assert model.interval("step") is None
    assert model.step_time(CHAINS[0]).error > 1


def test_one_shape_is_no_model() -> None:
    assert fit_step_time([]) is None
    assert fit_step_time(timed([CHAINS[0], CHAINS[0]])) is None
