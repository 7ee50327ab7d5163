"""Checkpoints of one draft on one launch of a real server: the same accept lengths and outputs as when launched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.command_line import servers, sweeper, sweeper_process

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def trials(testbed: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    path = tmp_path_factory.mktemp("swaps")
    drafts = {name: {"path": str(testbed / f"draft_eagle3_{name}")} for name in ("100", "010", "035")}
    study = {
        "study": "swaps",
        "engine": {"model": str(testbed / "target"), "device": "cpu", "start_timeout_s": 240},
        "space": {
            "drafts": drafts,
            "grids": [{"algorithm": "EAGLE3", "drafts": list(drafts), "num_steps": [3, 2]}],
        },
        "workload": {
            "prompts": "testbed",
            "chat_template": False,
            "concurrency": [4],
            "max_new_tokens": 48,
            "ignore_eos": True,
        },
        "measurement": {"min_requests": 12, "rounds": 2, "max_requests": 12},
        "search": {"sampler": "grid", "prune": False},
        "confirmation": {"repeats": 0},
        "baseline": {"cache_dir": str(path / "baselines"), "laps": 1},
        "resources": {"cpus_per_server": 2},
        "runs_dir": str(path / "runs"),
    }
    file = path / "swaps.yaml"
    file.write_text(yaml.safe_dump(study))
    done = sweeper_process("run", str(file), timeout_s=1500)
    assert done.returncode == 0, done.stderr
    assert servers(str(path)) == []
    report = json.loads(sweeper("report", str(path / "runs" / "swaps"), "--json").stdout)
    return sorted(report["trials"], key=lambda trial: trial["number"])


def test_one_launch_measures_three_checkpoints(trials: list[dict[str, Any]]) -> None:
    assert [trial["config"]["draft"] for trial in trials] == ["100", "010", "035"] * 2
    kinds = [(trial["hot_swap"] or "its own server").split()[0] for trial in trials]
    assert kinds == ["its", "launched,", "measured", "its", "measured", "measured"]
    assert "not to be believed" not in trials[1]["hot_swap"]


def test_outputs_stay_the_targets(trials: list[dict[str, Any]]) -> None:
    assert [trial["outputs_equal"] for trial in trials] == [True] * 6


def test_a_better_checkpoint_accepts_more_under_equal_numbers(trials: list[dict[str, Any]]) -> None:
    """As on launches of their own: the server does run the weights that it was given."""
    for group in (trials[:3], trials[3:]):
        lengths = {t["config"]["draft"]: t["loads"][0]["accept_length"]["value"] for t in group}
        assert lengths["010"] < lengths["035"] < lengths["100"]
