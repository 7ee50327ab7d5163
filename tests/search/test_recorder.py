"""The recorder's launches, on servers that say what the test wants."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.records import FailureClass, Hardware, TrialRecord, TrialResult, TrialState
from sweeper.search.landscape import Entry, Landscape, Point
from sweeper.search.passes import Pass
from sweeper.search.recorder import MOST_LOST, Goal, Recorder
from sweeper.search.replay import measured
from sweeper.server.failures import failure
from sweeper.server.setup import EngineSetup, shared_pins
from sweeper.space import enumerate_space
from sweeper.speculation import NO_SPECULATION, SpeculationConfig
from sweeper.trial.order import TrialOrder, TrialPlan
from sweeper.workload.prompts import plan_prompts, read_conversations

Says = Callable[[SpeculationConfig], TrialRecord]


def ran(config: SpeculationConfig) -> TrialRecord:
    """A launch that went well, at both loads."""
    point = Point(output_tok_s=100, half_width=0, scatter=0.01, accept_length=2, step_time_s=0.01)
    entry = Entry(
        algorithm=config.algorithm,
        draft=config.draft,
        num_steps=config.num_steps,
        topk=config.topk,
        num_draft_tokens=config.num_draft_tokens,
        start_s=3,
        measure_s=2,
        points={"c=1": point, "c=4": point},
    )
    alone = Landscape(name="one", origin="synthetic", about="", baseline=entry.points, entries=(entry,))
    return measured(alone, entry, np.random.default_rng(0))[0]


def failed(config: SpeculationConfig, kind: FailureClass) -> TrialRecord:
    return TrialRecord(config, config, TrialState.FAILED, failure=failure(kind, "as the test wants it"))


class Scripted:
    """One server, whose launches end at once."""

    def __init__(self, says: Says) -> None:
        self.says = says
        self.launched: list[SpeculationConfig] = []
        self.ended: list[tuple[str, TrialResult]] = []

    def hardware(self, kind: str = "") -> Hardware:
        return Hardware("Scripted", 1)

    def idle(self) -> list[str]:
        return [] if self.ended else ["one"]

    def start(self, tag: str, order: TrialOrder, on: str | None = None) -> None:
        self.launched.append(order.candidate.effective)
        self.ended = [(tag, TrialResult(self.says(order.candidate.effective)))]

    def wait(self, timeout_s: float) -> list[tuple[str, TrialResult]]:
        ended, self.ended = self.ended, []
        return ended

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)


def recorder(study: StudyConfig, folder: Path, says: Says) -> tuple[Recorder, Scripted, list[Pass]]:
    servers, told = Scripted(says), []
    plan = TrialPlan(
        study,
        EngineSetup("0.5.23", pins=shared_pins(study, "0.5.23")),
        plan_prompts(study, read_conversations(study)),
    )
    candidates = enumerate_space(study.space).candidates
    made = Recorder(plan, candidates, servers, folder, lambda done, _: told.append(done))
    return made, servers, told


def test_it_goes_on_until_every_config_is_known_and_takes_up_what_is_there(
    study: StudyConfig, tmp_path: Path
) -> None:
    first, servers, told = recorder(study, tmp_path, ran)
    progress = first.record(Goal(0.05))
    assert servers.launched[0] == NO_SPECULATION
    assert progress.precise == progress.configs == len(servers.launched) - 1 == 4
    assert [done.number for done in told] == [0, 1, 2, 3, 4]
    landscape = first.landscape("of a test")
    assert landscape is not None
    assert len(landscape.entries) == 4
    assert landscape.hardware == "1x Scripted"
    again, servers, _ = recorder(study, tmp_path, ran)
    assert again.record(Goal(0.05)).launches == 5
    assert servers.launched == []


def test_a_config_that_fails_is_an_entry_and_is_not_launched_again(
    study: StudyConfig, tmp_path: Path
) -> None:
    def says(config: SpeculationConfig) -> TrialRecord:
        return failed(config, FailureClass.OOM_RUNTIME) if config.num_steps == 3 else ran(config)

    made, servers, _ = recorder(study, tmp_path, says)
    made.record(Goal(0.05))
    assert len(servers.launched) == 5
    landscape = made.landscape("of a test")
    assert landscape is not None
    assert {entry.failure for entry in landscape.entries if entry.num_steps == 3} == {
        FailureClass.OOM_RUNTIME
    }


def test_a_lost_launch_is_made_again_and_too_many_in_a_row_end_it(study: StudyConfig, tmp_path: Path) -> None:
    lost = iter([True, False] * 5)

    def now_and_then(config: SpeculationConfig) -> TrialRecord:
        return failed(config, FailureClass.LOST) if next(lost) else ran(config)

    made, servers, told = recorder(study, tmp_path / "a", now_and_then)
    made.record(Goal(0.05))
    assert len(servers.launched) == 2 * len(told) == 10
    made, servers, told = recorder(study, tmp_path / "b", lambda config: failed(config, FailureClass.LOST))
    with pytest.raises(SweeperError, match=f"{MOST_LOST} launches in a row were lost, the last: as the test"):
        made.record(Goal(0.05))
    assert told == []


def test_a_server_that_runs_another_config_ends_it(study: StudyConfig, tmp_path: Path) -> None:
    other = SpeculationConfig("EAGLE3", "a", 2, 1, 3)
    made, _, told = recorder(
        study, tmp_path, lambda config: ran(config if config == NO_SPECULATION else other)
    )
    with pytest.raises(SweeperError, match=r"runs EAGLE3 a 2/1/3 instead"):
        made.record(Goal(0.05))
    assert [done.config for done in told] == [NO_SPECULATION]


def test_launches_under_other_settings_are_not_mixed(study: StudyConfig, tmp_path: Path) -> None:
    recorder(study, tmp_path, ran)[0].require_same_settings()
    recorder(study, tmp_path, ran)[0].require_same_settings()
    measurement = study.measurement.model_copy(update={"drift_tolerance": 0.2})
    other = study.model_copy(update={"measurement": measurement})
    with pytest.raises(SweeperError, match=r"made under other settings \(measurement\)"):
        recorder(other, tmp_path, ran)[0].require_same_settings()
