"""Moods that outlast a window are seen by going back, and widen what single windows say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sweeper.analysis.intervals import LogEstimate, joined, unexplained
from sweeper.breakeven import Arm, speedup
from sweeper.load.repeatability import repeatability
from sweeper.load.statistics import rate_estimate
from sweeper.load.window import stretches
from sweeper.records import UNKNOWN_REPEATABILITY, Load, Repeatability, RequestRecord
from tests.load.simulated import Engine, requests

LOADS = [Load(1), Load(4), Load(8)]
MOOD = 0.1
"""Standard deviation of the log of a visit's speed: the whole window is faster or slower by it."""


def visit(load: Load, lap: int, random: np.random.Generator, prompts: int = 0) -> list[RequestRecord]:
    engine = Engine(load.concurrency, step_s=0.02 * float(np.exp(random.normal(0, MOOD))), mood=0.05)
    found = requests(engine, 24, seed=int(random.integers(2**31)), prompts=prompts)
    return [replace(r, lap=lap) for r in found]


def visits(random: np.random.Generator, laps: int) -> dict[Load, list[RequestRecord]]:
    return {load: [r for lap in range(laps) for r in visit(load, lap, random)] for load in LOADS}


def test_what_visits_differ_by_beyond_their_own_errors_is_found() -> None:
    random = np.random.default_rng(1)
    errors = [repeatability(visits(random, 3)).closed[0] for _ in range(12)]
    assert np.median(errors) == pytest.approx(MOOD, rel=0.3)


def test_one_visit_says_nothing() -> None:
    assert repeatability(visits(np.random.default_rng(1), 1)) == UNKNOWN_REPEATABILITY


def test_a_machine_without_moods_leaves_the_intervals_alone() -> None:
    calm = [LogEstimate(100.0, 0.02, 10), LogEstimate(100.5, 0.02, 10)]
    assert unexplained([calm]).error == 0


def test_the_unexplained_part_by_hand() -> None:
    # logs ±0.1: variance 0.02 with one degree of freedom, of which the repeats' own errors explain 0.0025 each
    found = unexplained([[LogEstimate(np.exp(0.1), 0.05, 10), LogEstimate(np.exp(-0.1), 0.05, 10)]])
    assert found.error == pytest.approx(np.sqrt(0.02 - 0.0025))
    assert found.freedom == pytest.approx((0.0175 / 0.02) ** 2)


def test_stretches_join_by_their_counts() -> None:
    # 100/s for 1 s and 50/s for 2 s: 200 in 3 s, half from each, so errors count half
    found = joined([LogEstimate(100, 0.04, 10), LogEstimate(50, 0.02, 10)], [1, 2], LogEstimate(1, 0.1, 5))
    assert found.value == pytest.approx(200 / 3)
    assert found.error**2 == pytest.approx(0.02**2 + 0.01**2 + 0.1**2 / 2)


def test_single_windows_hold_the_truth_once_the_moods_are_known() -> None:
    random = np.random.default_rng(3)
    repeats = repeatability(visits(random, 3))
    windows = [stretches(visit(Load(4), 0, random, prompts=1000 * i), Load(4)) for i in range(40)]
    alone = [rate_estimate(window) for window in windows]
    known = [rate_estimate(window, LogEstimate(1.0, *repeats.closed)) for window in windows]
    truth = float(np.exp(np.mean(np.log([e.value for e in alone]))))
    held = [sum(e.interval.low <= truth <= e.interval.high for e in found) for found in (alone, known)]
    assert held[0] < 34 <= held[1]


def test_identical_configs_under_other_moods_are_not_called_different() -> None:
    random = np.random.default_rng(4)
    repeats = repeatability(visits(random, 3))
    different = {UNKNOWN_REPEATABILITY: 0, repeats: 0}
    for i in range(40):
        arms = [Arm(Load(4), visit(Load(4), 0, random, prompts=1000 * i)) for _ in (0, 1)]
        for known in different:
            found = speedup(arms[0], arms[1], known).interval
            different[known] += found.low > 1 or found.high < 1
    assert different[repeats] <= 4 < different[UNKNOWN_REPEATABILITY]


def test_a_baseline_of_several_laps_is_known_better() -> None:
    random = np.random.default_rng(5)
    plain = visits(random, 3)[Load(4)]
    repeats = Repeatability((MOOD, 6.0))
    ours = Arm(Load(4), visit(Load(4), 0, random))
    one, three = (
        speedup(ours, Arm(Load(4), found), repeats) for found in ([r for r in plain if r.lap == 0], plain)
    )
    assert three.error < one.error


def test_latencies_of_an_open_loop_have_moods_of_their_own() -> None:
    load = Load(rate=2.0)
    slower = {0: 1.0, 1: 1.2}
    found = [
        replace(r, load=str(load), lap=lap, done_s=r.sent_s + r.e2e_s * factor)
        for lap, factor in slower.items()
        for r in requests(Engine(concurrency=1, mood=0), 12, seed=1)
    ]
    known = repeatability({load: found})
    assert known.closed == UNKNOWN_REPEATABILITY.closed
    assert known.open[0] == pytest.approx(np.log(1.2) / np.sqrt(2), rel=0.1)
