"""Fixtures: study files for the fast stand-in server and for the real one on the CPU test bed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from sweeper.config import StudyConfig
from sweeper.study_file.reading import load_study_file
from sweeper.testbed.environment import cache_dir
from tests.checkpoints import write_eagle3
from tests.command_line import WIDE

if TYPE_CHECKING:
    from tests.actors.nodes import Nodes

# Before a test imports the consoles, which look once.
os.environ.update(WIDE)
# Not 15: whatever else runs here would starve the clients that measure. Not 0: Ray itself comes first.
os.environ.setdefault("RAY_worker_niceness", "5")
# A node that is gone refuses its connection five times running before Ray believes it: 5 s instead of 15.
os.environ.setdefault("RAY_health_check_period_ms", "1000")

FAKE_ENGINE = Path(__file__).parent / "fake_engine"
WriteStudy = Callable[..., Path]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What ``--dist loadgroup`` gives to one process each: real servers, and sweeps on one Ray.

    Servers that start have most of two cores to themselves anyway, so only one process starts them.
    """
    for item in items:
        if item.get_closest_marker("e2e"):
            item.add_marker(pytest.mark.xdist_group("real SGLang"))
        elif "on_shared_ray" in item.fixturenames:  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.xdist_group("sweeps"))


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """``base`` with ``changes`` applied key by key, nested."""
    out = dict(base)
    for key, value in changes.items():
        out[key] = (
            merged(out[key], value) if isinstance(value, dict) and isinstance(out.get(key), dict) else value
        )
    return out


@pytest.fixture
def write_study(tmp_path: Path) -> WriteStudy:
    """Writes a small, valid study file for the stand-in server; keyword arguments change parts of it."""
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "config.json").write_text("{}")
    for name in ("draft_a", "draft_b"):
        write_eagle3(tmp_path / name)
    rows = [{"id": f"p{i}", "prompt": f"prompt number {i}"} for i in range(80)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    base: dict[str, Any] = {
        "study": "small",
        "engine": {
            "model": "target",
            "device": "cpu",
            "start_timeout_s": 60,
            "env": {"PYTHONPATH": str(FAKE_ENGINE)},
        },
        "space": {
            "drafts": {"a": {"path": "draft_a"}, "b": {"path": "draft_b"}},
            "grids": [{"algorithm": "EAGLE3", "drafts": ["a", "b"], "num_steps": [1, 3]}],
        },
        "workload": {"prompts": "prompts.jsonl", "concurrency": [1, 4], "max_new_tokens": 16},
        "measurement": {"min_requests": 8, "rounds": 2, "max_requests": 16, "warmup_tolerance": 9},
        # Faults of the stand-in go by the draft that it was launched with.
        "search": {"sampler": "grid", "prune": False, "hot_swap": "off"},
        "confirmation": {"finalists": 1, "repeats": 0},
        # A stand-in on a busy machine is never steady: what tests a drifting baseline narrows this.
        "baseline": {"cache_dir": str(tmp_path / "baselines"), "tolerance": 0.9, "laps": 1},
        "runs_dir": str(tmp_path / "runs"),
    }

    def write(**changes: Any) -> Path:
        path = tmp_path / "study.yaml"
        path.write_text(yaml.safe_dump(merged(base, changes)))
        return path

    return write


@pytest.fixture
def study(write_study: WriteStudy) -> StudyConfig:
    return load_study_file(write_study())


@pytest.fixture(scope="session")
def shared_ray() -> Iterator[str]:
    """A Ray of two CPUs that sweeps of many tests connect to: one of its own each would take 8 s to start and end."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    yield cluster.address
    cluster.shutdown()


@pytest.fixture
def on_shared_ray(shared_ray: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps of this test run there; without this, a sweep starts and ends a local Ray of its own."""
    monkeypatch.setenv("RAY_ADDRESS", shared_ray)


@pytest.fixture(scope="session")
def nodes() -> Iterator[Nodes]:
    """Ray clusters of several nodes. The head is the same for all of them; it takes the longest to start."""
    from tests.actors.nodes import beside, head

    with head() as cluster:
        yield partial(beside, cluster)


@pytest.fixture(scope="session")
def testbed() -> Path:
    """The tiny target and drafts; ``make test`` builds them first."""
    directory = cache_dir()
    assert (directory / "manifest.json").is_file(), "build the test bed first: sweeper testbed build"
    return directory
