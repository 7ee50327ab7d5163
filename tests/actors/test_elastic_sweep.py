"""A whole sweep on two servers: the one that has nothing left to do is checked, and given back, before the end."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from actors.pool import ServerPool
from sweeper.driver.driving import driving
from sweeper.space import enumerate_space
from sweeper.storage.stored_study import notices_of
from sweeper.study.surroundings import Surroundings, Tally
from sweeper.study.sweep import Sweep
from sweeper.study_file.reading import load_study_file
from tests.actors.nodes import Nodes, fake_nvidia_smi, plan_of
from tests.conftest import WriteStudy

pytestmark = [pytest.mark.xdist_group("one Ray"), pytest.mark.timeout(900)]


class Silent:
    """A display that notes how many servers were busy or there at every tick."""

    def __init__(self, pool: ServerPool) -> None:
        self.pool = pool
        self.sizes: list[int] = []

    def tick(self, tally: Tally, phases: Mapping[str, str]) -> None:
        self.sizes.append(self.pool.size())

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def test_servers_are_given_back_when_nothing_is_left_for_them(
    write_study: WriteStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nodes: Nodes
) -> None:
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{fake_nvidia_smi(directory)}{os.pathsep}{os.environ['PATH']}")
    study = load_study_file(
        write_study(
            engine={"device": "cuda"},
            space={"grids": [{"algorithm": "EAGLE3", "drafts": ["a"], "num_steps": [1, 2, 3]}]},
            confirmation={"repeats": 1},
            baseline={"tolerance": 0.9},
        )
    )
    said: list[str] = []
    kinds = ({"FAKE_KIND": "Fake H100", "FAKE_GPUS": "a"}, {"FAKE_KIND": "Fake A100", "FAKE_GPUS": "b"})
    with (
        nodes({"num_gpus": 2, "env": kinds[0]}, {"num_gpus": 1, "env": kinds[1]}),
        ServerPool(plan_of(study)) as pool,
        driving(study, tmp_path / "runs" / "small", said.append) as driver,
    ):
        display = Silent(pool)
        around = Surroundings(driver, pool, display)  # type: ignore[arg-type]
        sweep = Sweep(plan_of(study), enumerate_space(study.space).candidates, around)
        sweep.drive()
        assert pool.size() == 1
        assert max(display.sizes) >= 2
        finished = [trial.state.name for trial in sweep.stored.trials()]
        checks = sweep.stored.checks()
        notices = notices_of(sweep.stored.study.user_attrs)
    assert finished == ["COMPLETE"] * 3
    last = {check.server for check in checks if check.when in ("end", "confirmation 1")}
    assert len(last) == 2, checks  # either server was looked at after its last trial
    [notice] = notices
    assert "Fake A100 are not used" in notice
    assert notice in said
