"""What is known before a study's first launch: where it comes from, how far it is believed."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

from sweeper.config import StudyConfig
from sweeper.drafts.acceptance_map import AcceptanceMap, MapFacts
from sweeper.drafts.fingerprint import checkpoint_fingerprint
from sweeper.errors import SweeperError
from sweeper.records import Load
from sweeper.runs.directory import RunDirectory
from sweeper.search.candidates import distributions, parameters
from sweeper.search.earlier import known_beforehand
from sweeper.search.hints import EARLIER_LENGTH, MOST_FROM_MAP, NOTHING, from_earlier, from_map
from sweeper.search.landscape import Entry, Landscape, Point
from sweeper.search.outcome import Outcome
from sweeper.search.replay import measured
from sweeper.search.samplers import make_sampler
from sweeper.search.trust import believable
from sweeper.space import enumerate_space
from sweeper.speculation import SpeculationConfig
from sweeper.study.ending import end_trial


def chain(steps: int, draft: str = "a") -> SpeculationConfig:
    return SpeculationConfig("EAGLE3", draft, steps, 1, steps + 1)


class Map:
    """A map of draft a alone."""

    def accept_length(self, draft: str, steps: int, topk: int, n: int) -> tuple[float, float]:
        if draft != "a":
            raise SweeperError("no such draft")
        return 1 + 0.5 * steps, 0.1


def test_a_map_speaks_of_the_drafts_that_it_has() -> None:
    hints = from_map(Map(), [chain(2), chain(2, "b")])
    assert [(hint.config, hint.value) for hint in hints.accept_length] == [(chain(2), math.log(2))]
    assert hints.accept_length[0].error == pytest.approx(math.hypot(0.03, 0.1 / 2))
    assert not hints.cost


def test_a_large_map_is_thinned_out() -> None:
    assert len(from_map(Map(), [chain(1 + i % 9) for i in range(1000)]).accept_length) <= MOST_FROM_MAP


def launched(config: SpeculationConfig, length: float, speedup: float) -> Outcome:
    return Outcome(config, math.log(length), 0.005, math.log(speedup), 0.01)


def test_an_earlier_study_tells_costs_of_all_drafts_and_accept_lengths_of_the_same_ones() -> None:
    before = [launched(chain(3, "old"), 2.5, 1.5), launched(chain(3, "gone"), 2.0, 1.2)]
    hints = from_earlier(before, {"old": "a"})
    assert [hint.config for hint in hints.accept_length] == [chain(3)]
    assert hints.accept_length[0].error == pytest.approx(EARLIER_LENGTH, rel=0.01)
    assert [hint.value for hint in hints.cost] == pytest.approx([math.log(2.5 / 1.5), math.log(2.0 / 1.2)])


def test_hints_that_launches_bear_out_stay_as_they_are_and_others_lose_their_weight() -> None:
    hints = from_map(Map(), [chain(steps) for steps in range(1, 9)])
    as_promised = [launched(chain(3), 2.5, 1.5), launched(chain(6), 4.0, 1.6)]
    otherwise = [launched(chain(3), 1.3, 0.9), launched(chain(6), 1.35, 0.7)]
    assert believable(hints, as_promised) == hints
    doubted = believable(hints, otherwise)
    assert doubted == NOTHING or min(h.error for h in doubted.accept_length) > 0.2


def saved_map(study: StudyConfig, file: Path, **changes: Any) -> StudyConfig:
    """A study whose map knows draft a: of two positions, one draft is right at the first, none at the second."""
    facts = MapFacts(
        target=study.engine.model,
        target_fingerprint=checkpoint_fingerprint(Path(study.engine.model)),
        drafts={"a": checkpoint_fingerprint(Path(study.space.drafts["a"].path))},
        workload=study.workload.prompts,
        workload_fingerprint="",
        prompts=2,
        output_tokens=6,
        max_new_tokens=3,
        num_steps={1: 1},
    )
    ranks = np.array([1, 0, 1, 0], np.int16).reshape(4, 1, 1)
    AcceptanceMap(replace(facts, **changes), np.array([2, 2]), {("a", 1): ranks}).save(file)
    search = study.search.model_copy(update={"sampler": "structural", "acceptance_map": str(file)})
    return study.model_copy(update={"search": search})


def test_a_study_takes_a_maps_accept_lengths_up(study: StudyConfig, tmp_path: Path) -> None:
    """Both outputs are two tokens that one round yields."""
    told = saved_map(study, tmp_path / "a.map")
    hints, notes = known_beforehand(told, [chain(1), chain(3), chain(1, "b")], tmp_path)
    assert [(hint.config, hint.value) for hint in hints.accept_length] == [(chain(1), math.log(2))]
    assert notes == []


def test_a_map_of_another_target_is_refused_and_of_another_checkpoint_not_believed(
    study: StudyConfig, tmp_path: Path
) -> None:
    with pytest.raises(SweeperError, match="was made with another target"):
        known_beforehand(saved_map(study, tmp_path / "a.map", target_fingerprint="x"), [chain(1)], tmp_path)
    told = saved_map(study, tmp_path / "b.map", drafts={"a": "another"})
    hints, notes = known_beforehand(told, [chain(1)], tmp_path)
    assert hints == NOTHING
    assert notes == ["the acceptance map was made with another checkpoint of draft 'a'"]


def finished_run(study: StudyConfig, runs: Path) -> None:
    """A run of the study whose two launches of draft a ended with a speedup of 1.5."""
    run = RunDirectory(runs / study.study)
    run.write_study(study)
    point = Point(output_tok_s=75, half_width=0, scatter=0.01, accept_length=2, step_time_s=0.01)
    plain = point.model_copy(update={"output_tok_s": 50.0})
    entries = tuple(
        Entry(
            algorithm="EAGLE3",
            draft="a",
            num_steps=steps,
            topk=1,
            num_draft_tokens=steps + 1,
            start_s=1,
            measure_s=1,
            points={"c=1": point, "c=4": point},
        )
        for steps in (1, 3)
    )
    baseline = {"c=1": plain, "c=4": plain}
    there = Landscape(name="two", origin="synthetic", about="", baseline=baseline, entries=entries)
    candidates = enumerate_space(study.space).candidates
    stored = optuna.create_study(
        study_name=study.study,
        storage=f"sqlite:///{run.path}/study.db",
        sampler=make_sampler(study.search, candidates),
        direction="maximize",
    )
    for entry in entries:
        stored.enqueue_trial(parameters(entry.config))
        trial = stored.ask(distributions(candidates))
        end_trial(stored, trial, *measured(there, entry, np.random.default_rng(0)), [Load(1)])


def warmed(study: StudyConfig, name: str = "small", **changes: Any) -> StudyConfig:
    search = study.search.model_copy(update={"sampler": "structural", "warm_start": [name]})
    return study.model_copy(update={"study": "warm", "search": search, **changes})


def test_an_earlier_run_warms_a_study_up_whatever_its_drafts_are_called_now(
    study: StudyConfig, tmp_path: Path
) -> None:
    finished_run(study, tmp_path / "runs")
    drafts = {"new": study.space.drafts["a"]}
    told = warmed(study, space=study.space.model_copy(update={"drafts": drafts}))
    hints, _ = known_beforehand(told, [chain(1, "new")], tmp_path / "runs")
    assert [hint.config for hint in hints.accept_length] == [chain(1, "new"), chain(3, "new")]
    assert [hint.value for hint in hints.accept_length] == pytest.approx([math.log(2)] * 2)
    assert [hint.value for hint in hints.cost] == pytest.approx([math.log(2 / 1.5)] * 2, abs=0.05)


def test_a_run_that_says_nothing_of_this_study_is_refused(study: StudyConfig, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    finished_run(study, runs)
    other = study.engine.model_copy(update={"model": "another/target"})
    with pytest.raises(SweeperError, match="is of another target"):
        known_beforehand(warmed(study, engine=other), [], runs)
    loads = study.workload.model_copy(update={"concurrency": [2]})
    with pytest.raises(SweeperError, match="was not measured at c=2"):
        known_beforehand(warmed(study, workload=loads), [], runs)
    with pytest.raises(SweeperError, match="is this study itself"):
        known_beforehand(warmed(study).model_copy(update={"study": "small"}), [], runs)
    with pytest.raises(SweeperError, match="no run 'gone'"):
        known_beforehand(warmed(study, "gone"), [], runs)
