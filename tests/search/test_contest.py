"""What a contest of search methods plays, and what its scores come to."""

import json
from pathlib import Path

import pytest

from sweeper.search.contest import Duel, Score, Scores, contested_loads, duels, regret_curve, summaries
from sweeper.search.landscape import Entry, Landscape, Point, write_landscape
from sweeper.search.replay import in_the_order_of_the_script
from tests.command_line import sweeper


def at(tok_s: float) -> Point:
    return Point(output_tok_s=tok_s, half_width=0, scatter=0.01, accept_length=2, step_time_s=0.01)


def entry(draft: str, steps: int, topk: int, tokens: int) -> Entry:
    points = {"c=1": at(60.0), "c=16": at(450.0)}
    return Entry(
        algorithm="EAGLE3",
        draft=draft,
        num_steps=steps,
        topk=topk,
        num_draft_tokens=tokens,
        start_s=60,
        measure_s=30,
        points=points,
    )


LANDSCAPE = Landscape(
    name="two",
    origin="synthetic",
    about="speculation pays at concurrency 1 alone",
    baseline={"c=1": at(50.0), "c=16": at(500.0)},
    entries=(entry("b", 3, 1, 4), entry("b", 1, 1, 2), entry("a", 3, 4, 8), entry("a", 3, 1, 4)),
)


def score(seed: int, launches: int | None, *regret: float) -> Score:
    duel = Duel("two", "c=1", "random", 1, seed)
    return Score(duel, launches, launches and 90.0 * launches, 60, regret, 0.01)


def test_only_loads_at_which_something_pays_are_played() -> None:
    assert [str(load) for load in contested_loads(LANDSCAPE)] == ["c=1"]


def test_what_does_not_depend_on_the_seed_is_played_once() -> None:
    played = duels([LANDSCAPE], ["random", "script"], [1, 8], 3)
    assert [d.seed for d in played if d.method == "random" and d.actors == 8] == [0, 1, 2]
    assert [d.seed for d in played if d.method == "script" and d.actors == 8] == [0]


def test_the_script_goes_draft_by_draft_ascending() -> None:
    order = [f"{config.draft} {config.shape}" for config in in_the_order_of_the_script(LANDSCAPE)]
    assert order == ["b 1/1/2", "b 3/1/4", "a 3/1/4", "a 3/4/8"]


def test_a_search_that_missed_counts_as_one_launch_more_than_it_had() -> None:
    [found] = summaries({s.duel: s for s in (score(0, 4), score(1, None), score(2, 10))})
    assert (found.median, found.missed, found.seeds) == (10, 1, 3)
    assert found.hours == pytest.approx(90 * 7 / 3600)  # of those that came near


def test_a_search_that_ended_stays_where_it_was() -> None:
    assert regret_curve([score(0, 2, 0.4, 0.0), score(1, 3, 0.2, 0.1, 0.02)], 4) == pytest.approx(
        [0.3, 0.05, 0.01, 0.01]
    )


def test_scores_are_read_back_but_for_a_half_written_one(tmp_path: Path) -> None:
    scores = Scores(tmp_path / "scores.jsonl")
    made = [score(0, 2, 0.4, 0.0), score(1, None, 0.2)]
    for one in made:
        scores.add(one)
    with scores.path.open("a") as file:
        file.write('{"duel": {"landscape"')
    assert list(scores.read().values()) == made


def test_other_scatter_than_the_landscapes_is_played_under_a_name_of_its_own(tmp_path: Path) -> None:
    write_landscape(LANDSCAPE, tmp_path / "two.json")
    done = sweeper(
        *("bench-search", str(tmp_path / "two.json"), "--method", "script", "--actors", "1"),
        *("--scatter", "0", "--out", str(tmp_path / "bench"), "--json"),
    )
    assert [row["landscape"] for row in json.loads(done.stdout)] == ["two ±0"]
    points = [point for entry in LANDSCAPE.scattering(0.2).entries for point in entry.points.values()]
    assert {(point.scatter, point.half_width) for point in points} == {(0.2, 0.0)}
