"""The best config per load, and the one for all loads."""

import pytest

from sweeper.analysis.regret import Curve, best_at, single_best
from sweeper.records import Interval
from sweeper.speculation import SpeculationConfig

LOADS = ["c=1", "c=16"]


def curve(number: int, *values: float) -> Curve:
    config = SpeculationConfig("EAGLE3", "a", number + 1, 1, number + 2)
    return Curve(
        number,
        config,
        {load: Interval(v, v * 0.95, v * 1.05) for load, v in zip(LOADS, values, strict=False)},
    )


def test_each_load_has_a_winner_of_its_own_or_none() -> None:
    curves = [curve(0, 2.0, 0.6), curve(1, 1.5, 0.9)]
    best = best_at("c=1", curves, 0.01)
    assert best is not None
    assert best.number == 0
    assert best_at("c=16", curves, 0.01) is None


def test_the_config_for_all_loads_gives_up_least_where_it_is_not_the_best() -> None:
    """At c=16 plain serving is best: config 0 gives up 40 %, config 1 10 % there and 25 % at c=1, plain 50 % at c=1."""
    found = single_best([curve(0, 2.0, 0.6), curve(1, 1.5, 0.9)], LOADS, 0.01)
    assert found is not None
    assert found.number == 1
    assert found.regrets == pytest.approx({"c=1": 0.25, "c=16": 0.1})
    assert found.worst == pytest.approx(0.25)


def test_no_speculation_can_be_the_config_for_all_loads() -> None:
    found = single_best([curve(0, 0.9, 0.5)], LOADS, 0.01)
    assert found is not None
    assert found.number is None
    assert found.worst == 0


def test_a_config_that_missed_a_load_cannot_be_it() -> None:
    found = single_best([curve(0, 2.0)], LOADS, 0.01)
    assert found is not None
    assert found.number is None
    assert single_best([], [], 0.01) is None


def test_a_config_that_nowhere_surely_pays_cannot_be_it() -> None:
    found = single_best([curve(0, 1.04, 1.03)], LOADS, 0.01)
    assert found is not None
    assert found.number is None
