"""What the report works out: where the time goes, what losing configs lack, the best per load."""

from __future__ import annotations

import pytest

from reports.headline import closest, headline, lacks
from reports.reproduce import reproduce, server_command
from reports.validity import validity
from tests.reports.studies import CHAINS, study


def test_the_longer_chains_pay_at_low_load_only() -> None:
    found = study()
    chain = next(t for t in found.trials if str(t.config) == "EAGLE3 full 7/1/8")
    at = chain.break_even[""]
    assert at.verdict == "crosses"
    assert at.concurrency is not None
    assert 4 < at.concurrency < 16


def test_the_law_behind_the_step_times_is_found_at_every_load() -> None:
    for fit in study().step_times:
        costs = {cost.term: cost.ms for cost in fit.costs}
        assert fit.separable
        assert costs["step"] == pytest.approx(0.8, rel=1e-3)
        assert costs["branch"] == pytest.approx(0.02, rel=1e-2)
        assert costs["token"] == pytest.approx({"c=1": 0.1, "c=4": 0.35, "c=16": 4.0}[fit.load], rel=1e-3)


def test_a_weak_draft_lacks_acceptance_or_a_cheaper_draft() -> None:
    found = study()
    weak = next(t for t in found.trials if str(t.config) == "EAGLE3 tiny 3/1/4")
    row = weak.loads[0]
    assert row.shortfall is not None
    assert row.shortfall.needed_accept_length == pytest.approx(row.break_even_accept_length)
    assert "it would take a conditional acceptance of" in lacks(weak, row)


def test_every_load_has_its_best_and_one_config_loses_least_over_all() -> None:
    found = study()
    best = {choice.load: choice for choice in found.best_per_load}
    assert best["c=1"].trial == found.winner
    assert found.single_best is not None
    assert found.single_best.regrets.keys() == {"c=1", "c=4", "c=16"}
    assert all(0 <= regret < 1 for regret in found.single_best.regrets.values())


def test_where_nothing_pays_the_headline_says_what_would() -> None:
    found = study(drafts=("tiny",), shapes=[shape for shape in CHAINS if shape[0] >= 3])
    said = headline(found)
    assert said.kind == "plain"
    assert said.title == "Do not speculate"
    nearest = closest(found)
    assert nearest is not None
    assert f"pays above {nearest[1].break_even_accept_length:.2f}" in said.text
    assert all(choice.trial is None for choice in found.best_per_load)


def test_what_is_unstable_unequal_or_failed_is_told() -> None:
    found = validity(study())
    assert any("15/1/16 at c=16" in line for line in found.unstable)
    assert found.failures == ["CRASH: 1 trial(s)", "OOM_RUNTIME: 1 trial(s)"]
    assert found.skipped == ["1 config(s): fails as trial 27 did"]
    assert found.notices == ["node-3 was cordoned"]


def test_commands_leave_out_what_belonged_to_one_launch() -> None:
    words = [
        "/venv/bin/python",
        "-m",
        "sglang.launch_server",
        "--port",
        "1",
        "--api-key",
        "***",
        "--x",
        "a b",
    ]
    assert server_command(words) == "python -m sglang.launch_server --x 'a b'"
    commands = [command for _, command in reproduce(study())]
    assert "sweeper report planted --recompute" in commands
