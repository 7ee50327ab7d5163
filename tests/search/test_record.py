"""``sweeper record`` on the stand-in server, and what the searches make of its landscape."""

import json
from pathlib import Path

import pytest

from sweeper.search.landscape import read_landscape
from sweeper.search.passes import read_passes
from tests.command_line import sweeper
from tests.conftest import WriteStudy


@pytest.mark.usefixtures("on_shared_ray")
def test_a_landscape_is_recorded_in_slices_and_searched(write_study: WriteStudy) -> None:
    file = write_study(space={"grids": [{"algorithm": "EAGLE3", "drafts": "a", "num_steps": [1, 3]}]})
    folder = file.parent / "runs" / "small.record"
    first = sweeper("record", str(file), "--half-width", "0.5", "--max-minutes", "0.1")
    assert first.returncode == 0, first.stderr
    before = read_passes(folder / "passes.jsonl")
    again = sweeper("record", str(file), "--half-width", "0.5")
    assert again.returncode == 0, again.stderr
    passes = read_passes(folder / "passes.jsonl")
    assert passes[: len(before)] == before
    landscape = read_landscape(folder / "landscape.json")
    assert landscape.origin == "recorded"
    assert [entry.config.shape for entry in landscape.entries] == ["1/1/2", "3/1/4"]
    assert all(p.half_width <= 0.5 for entry in landscape.entries for p in entry.points.values())
    assert sum(landscape.entries[1].points["c=1"].histogram) > 0

    bench = sweeper(
        *("bench-search", str(folder / "landscape.json"), "--method", "structural", "--method", "random"),
        *("--actors", "1", "--seeds", "2", "--out", str(folder / "bench"), "--json"),
    )
    assert bench.returncode == 0, bench.stderr
    rows = json.loads(bench.stdout)
    assert {row["method"] for row in rows} <= {"structural", "random"}
    assert all(1 <= row["median"] <= 2 for row in rows)
    assert (folder / "bench" / "summary.md").is_file()


def test_a_wrong_method_is_one_error(tmp_path: Path) -> None:
    done = sweeper("bench-search", str(tmp_path), "--method", "magic")
    assert done.returncode == 2
    assert "known are structural" in done.stderr
