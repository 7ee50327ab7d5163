"""A whole sweep whose checkpoints share launches, on the stand-in server."""

from __future__ import annotations

import json

import pytest

from tests.command_line import sweeper
from tests.conftest import WriteStudy

pytest.importorskip("torch")
pytest.importorskip("safetensors")


@pytest.mark.usefixtures("on_shared_ray")
def test_siblings_are_measured_in_pairs_and_one_of_them_proves_it(write_study: WriteStudy) -> None:
    """The grid's own order is draft by draft; that of cheap launches is number by number."""
    path = write_study(
        space={"grids": [{"algorithm": "EAGLE3", "drafts": ["a", "b"], "num_steps": [1, 2, 3]}]},
        measurement={"min_requests": 4, "max_requests": 4},
        workload={"concurrency": [1]},
        search={"hot_swap": "auto"},
        resources={"max_servers": 1},
    )
    done = sweeper("run", str(path))
    assert done.returncode == 0, done.stderr
    run = str(path.parent / "runs" / "small")
    trials = json.loads(sweeper("report", run, "--json").stdout)["trials"]
    trials.sort(key=lambda trial: trial["number"])
    assert [(t["config"]["draft"], t["config"]["num_steps"]) for t in trials] == [
        (draft, steps) for steps in (1, 2, 3) for draft in "ab"
    ]
    assert {t["state"] for t in trials} == {"COMPLETE"}
    assert [t["hot_swap"] and t["hot_swap"].split()[0] for t in trials] == [
        *(None, "launched,"),
        *(None, "measured"),
        *(None, "measured"),
    ]
    swapped = trials[3]
    assert "draft_b" in " ".join(swapped["command"])
    assert "Hot swaps" in (path.parent / "runs" / "small" / "report" / "summary.md").read_text()
