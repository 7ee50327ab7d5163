"""How the launches for a landscape are ordered, and what they come to together."""

import math
from pathlib import Path

import pytest

from sweeper.records import FailureClass
from sweeper.search.passes import BASELINE_EVERY, Pass, PassPoint, append_pass, read_passes
from sweeper.search.pooling import entry, moods, this_round, together
from sweeper.speculation import NO_SPECULATION, SpeculationConfig

A, B = (SpeculationConfig("EAGLE3", "a", steps, 1, steps + 1) for steps in (1, 3))


def launch(number: int, config: SpeculationConfig, rate: float, half_width: float = 0.01) -> Pass:
    point = PassPoint(rate, half_width, 2.0, 0.02, (1, 2))
    return Pass(number, config, 30.0, 20.0, {"c=1": point})


def test_repeats_of_a_config_give_their_mean_and_its_error() -> None:
    """Logs scatter by 0.02 around two means, 2 degrees of freedom (counted as 3): 3.182 · 0.02 · sqrt(1/2)."""
    shift = math.exp(0.02 / math.sqrt(2))
    passes = [
        launch(0, A, 100 * shift),
        launch(1, A, 100 / shift),
        launch(2, B, 50 * shift),
        launch(3, B, 50 / shift),
    ]
    found = together(passes, "c=1")
    assert found[A].output_tok_s == pytest.approx(100)
    assert found[A].scatter == pytest.approx(0.02)
    assert found[A].half_width == pytest.approx(3.182 * 0.02 / math.sqrt(2), rel=1e-3)


def test_a_single_launch_is_as_sure_as_its_own_interval() -> None:
    assert together([launch(0, A, 100, 0.04)], "c=1")[A].half_width == pytest.approx(0.04)


def test_what_the_baselines_show_of_the_machines_mood_is_taken_out() -> None:
    """In the second stretch everything runs 20 % slower, the baseline too."""
    second = BASELINE_EVERY
    passes = [
        launch(0, NO_SPECULATION, 50, 0.001),
        launch(1, A, 100),
        launch(second, NO_SPECULATION, 40, 0.001),
        launch(second + 1, B, 80),
    ]
    found = together(passes, "c=1")
    assert found[A].output_tok_s == pytest.approx(found[B].output_tok_s, rel=1e-3)


def test_baselines_that_scatter_no_more_than_they_must_show_no_mood() -> None:
    passes = [launch(0, NO_SPECULATION, 50, 0.2), launch(BASELINE_EVERY, NO_SPECULATION, 48, 0.2)]
    assert set(moods(passes, "c=1").values()) == {0.0}


def test_every_config_is_launched_once_before_any_is_launched_again() -> None:
    configs = [SpeculationConfig("EAGLE3", "a", steps, 1, steps + 1) for steps in range(1, 8)]
    passes: list[Pass] = []
    while len(passes) < 2 * BASELINE_EVERY:
        config = this_round(passes, configs, [], 0.001, ["c=1"]).next()
        assert config is not None
        passes.append(launch(len(passes), config, 100))
    assert [p.config for p in passes[::BASELINE_EVERY]] == [NO_SPECULATION] * 2
    first, second = (passes[i + 1 : i + BASELINE_EVERY] for i in (0, BASELINE_EVERY))
    assert {p.config for p in first} == {p.config for p in second} == set(configs)
    assert [p.config for p in first] != [p.config for p in second]


def test_what_is_known_well_enough_or_fails_is_launched_no_more() -> None:
    passes = [launch(0, NO_SPECULATION, 50), launch(1, A, 100, 0.01)]
    assert this_round(passes, [A, B], [], 0.02, ["c=1"]).next() == B
    passes.append(Pass(2, B, 5.0, 0.0, {}, FailureClass.OOM_RUNTIME))
    assert this_round(passes, [A, B], [], 0.02, ["c=1"]).next() is None
    assert this_round(passes, [A, B], [], 0.005, ["c=1"]).next() == A


def test_what_a_running_server_can_take_comes_first_and_puts_the_baseline_off() -> None:
    passes = [launch(number, NO_SPECULATION if not number else A, 50) for number in range(BASELINE_EVERY)]
    round_ = this_round(passes, [A, B], [], 0.001, ["c=1"])
    assert round_.next() == NO_SPECULATION
    assert round_.next(near=[B]) == B
    last = [*passes, *(launch(BASELINE_EVERY + n, B, 50) for n in range(BASELINE_EVERY - 1))]
    assert this_round(last, [A, B], [], 0.001, ["c=1"]).next(near=[A, B]) == NO_SPECULATION
    put_off = [*passes, launch(BASELINE_EVERY, B, 50)]
    assert this_round(put_off, [A, B], [], 0.001, ["c=1"]).next() == NO_SPECULATION
    assert this_round(put_off, [A, B], [NO_SPECULATION], 0.001, ["c=1"]).next() == B


def test_passes_are_read_back_but_for_a_half_written_one(tmp_path: Path) -> None:
    passes = [launch(0, A, 100), Pass(1, B, 5.0, 0.0, {}, FailureClass.OOM_RUNTIME, "now", launched=False)]
    for done in passes:
        append_pass(tmp_path / "passes.jsonl", done)
    with (tmp_path / "passes.jsonl").open("a") as file:
        file.write('{"number": 2, "con')
    assert read_passes(tmp_path / "passes.jsonl") == passes


def test_an_entry_adds_the_histograms_up() -> None:
    passes = [launch(0, A, 100), launch(1, A, 102)]
    made = entry(A, passes, {"c=1": together(passes, "c=1")[A]})
    assert made is not None
    assert made.points["c=1"].histogram == (2, 4)
    assert made.points["c=1"].passes == 2
    assert entry(B, passes, {}) is None
