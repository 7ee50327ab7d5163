"""Thirty configs through random ``kill -9`` of servers, actors, nodes and the driver: ``benchmarks.chaos``."""

from __future__ import annotations

import pytest

from benchmarks.chaos.__main__ import LIMIT_S, run

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("one Ray"), pytest.mark.timeout(LIMIT_S + 120)]


def test_whatever_is_killed_every_config_ends_once_and_nothing_is_lost_or_left() -> None:
    outcome = run(seed=1)
    assert outcome.problems == ()
    assert sum(outcome.strikes.values()) >= 10, outcome
    assert sum(outcome.ended.values()) == 30, outcome
