"""Landscape files."""

from pathlib import Path

import pytest

from sweeper.errors import SweeperError
from sweeper.search.landscape import Entry, Landscape, Point, read_landscape, read_landscapes, write_landscape

POINT = Point(
    output_tok_s=100, half_width=0.01, scatter=0.02, accept_length=2, step_time_s=0.02, histogram=(1, 3)
)


def landscape(*steps: int) -> Landscape:
    return Landscape(
        name="small",
        origin="synthetic",
        about="made up",
        baseline={"c=1": POINT.model_copy(update={"output_tok_s": 50})},
        entries=tuple(
            Entry(
                algorithm="EAGLE3",
                draft="a",
                num_steps=s,
                topk=1,
                num_draft_tokens=s + 1,
                start_s=60,
                measure_s=30,
                points={"c=1": POINT},
            )
            for s in steps
        ),
    )


def test_a_landscape_is_read_back(tmp_path: Path) -> None:
    made = landscape(1, 3)
    write_landscape(made, tmp_path / "small.json")
    assert read_landscape(tmp_path / "small.json") == made
    assert made.speedup(made.entries[0], made.loads[0]) == 2
    assert read_landscapes([tmp_path]) == [made]


def test_what_is_none_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad.json").write_text('{"name": "x"}')
    with pytest.raises(SweeperError, match=r"bad.json is no landscape: .*origin"):
        read_landscape(tmp_path / "bad.json")
    with pytest.raises(SweeperError, match="no landscape there"):
        read_landscapes([tmp_path / "empty"])
    with pytest.raises(SweeperError, match="No such file"):
        read_landscape(tmp_path / "none.json")


def test_a_config_stands_in_it_once_and_at_every_load() -> None:
    with pytest.raises(ValueError, match="stands there twice"):
        landscape(1, 1)
    whole = landscape(1).model_dump()
    whole["baseline"]["c=4"] = whole["baseline"]["c=1"]
    with pytest.raises(ValueError, match="has no point at c=4"):
        Landscape.model_validate(whole)
