"""The recorder's launches, on servers that say what the test wants."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeper.config import StudyConfig
from sweeper.drafts.preflight.findings import DraftReport
from sweeper.errors import SweeperError
from sweeper.records import FailureClass, Hardware, HotSwap, SwapOutcome, TrialRecord, TrialResult, TrialState
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
        self.swapped: list[SpeculationConfig] = []
        self.ended: list[tuple[str, TrialResult]] = []

    def hardware(self, kind: str = "") -> Hardware:
        return Hardware("Scripted", 1)

    def idle(self) -> list[str]:
        return [] if self.ended else ["one"]

    def start(self, tag: str, order: TrialOrder, on: str | None = None) -> None:
        config, wish = order.candidate.effective, order.hot_swap
        record = replace(self.says(config), start_s=3.0 if config.speculates else 1.0)
        if wish.take:
            outcome = SwapOutcome.PROVEN if wish.prove else SwapOutcome.MEASURED
            took = record.start_s if wish.prove else 0.5
            record = replace(record, hot_swap=HotSwap("a", 0.5, outcome, 2.0, 2.0), start_s=took)
        (self.launched if record.launched else self.swapped).append(config)
        self.ended = [(tag, TrialResult(record, server="one", kept=wish.keep))]

    def wait(self, timeout_s: float) -> list[tuple[str, TrialResult]]:
        ended, self.ended = self.ended, []
        return ended

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(name)


def recorder(
    study: StudyConfig, folder: Path, says: Says, reports: Sequence[DraftReport] = ()
) -> tuple[Recorder, Scripted, list[Pass]]:
    servers, told = Scripted(says), []
    plan = TrialPlan(
        study,
        EngineSetup("0.5.23", pins=shared_pins(study, "0.5.23")),
        plan_prompts(study, read_conversations(study)),
        tuple(reports),
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


FAMILY = [DraftReport(name, "EAGLE3", name, "EAGLE3", family="one") for name in "abc"]


@pytest.fixture
def siblings(study: StudyConfig) -> StudyConfig:
    """The study with three checkpoints of one draft."""
    search = study.search.model_copy(update={"hot_swap": "auto"})
    drafts = dict.fromkeys("abc", study.space.drafts["a"])
    grid = study.space.grids[0].model_copy(update={"drafts": None})
    space = study.space.model_copy(update={"drafts": drafts, "grids": (grid,)})
    return study.model_copy(update={"search": search, "space": space})


def test_checkpoints_of_one_draft_share_a_launch_and_its_costs_are_the_launchs(
    siblings: StudyConfig, tmp_path: Path
) -> None:
    """The first swap of each recording is proven by a launch."""
    made, servers, told = recorder(siblings, tmp_path, ran, FAMILY)
    progress = made.record(Goal(0.05))
    configs = [c for c in servers.launched if c != NO_SPECULATION]
    numbers = {replace(c, draft="") for c in made.candidates}
    assert progress.precise == len(made.candidates) == 3 * len(numbers)
    assert len(configs) == len(numbers) + 1
    assert len(servers.swapped) == 2 * len(numbers) - 1
    together = [replace(done.config, draft="") for done in told if done.config != NO_SPECULATION]
    assert together == [numbers_ for first in together[::3] for numbers_ in [first] * 3]
    assert [done.config for done in told if done.launched] == servers.launched
    landscape = made.landscape("of a test")
    assert landscape is not None
    assert {entry.start_s for entry in landscape.entries} == {3.0}


def test_every_round_has_launches_and_baselines_of_its_own(siblings: StudyConfig, tmp_path: Path) -> None:
    """A launch of 1 % scatter is known within 2 %, so 1.5 % takes two rounds of two shapes and three checkpoints."""
    made, servers, told = recorder(siblings, tmp_path, ran, FAMILY)
    made.record(Goal(0.015))
    rounds = [[d for d in told if d.config != NO_SPECULATION][at : at + 6] for at in (0, 6)]
    assert [len({d.config for d in measured}) for measured in rounds] == [6, 6]
    assert [sum(d.launched for d in measured) for measured in rounds] == [3, 2]  # one of them is the proof
    assert len(told) == 14
    assert {d.block for d in told if d.config == NO_SPECULATION} == {0, 1}
    (tmp_path / "again").mkdir()
    lines = (tmp_path / "passes.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "again" / "passes.jsonl").write_text(
        "".join(lines[:6])
    )  # one config is left of the first round
    made, servers, told = recorder(siblings, tmp_path / "again", ran, FAMILY)
    made.record(Goal(0.015))
    assert len(made.passes) == 14
    assert servers.swapped
