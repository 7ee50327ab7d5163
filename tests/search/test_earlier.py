"""What is known before a study's first launch: where it comes from, how far it is believed."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweeper.config import StudyConfig
from sweeper.drafts.acceptance_map import AcceptanceMap, MapFacts
from sweeper.drafts.fingerprint import checkpoint_fingerprint
from sweeper.errors import SweeperError
from sweeper.search.earlier import known_beforehand
from sweeper.search.hints import EARLIER_LENGTH, MOST_FROM_MAP, NOTHING, from_earlier, from_map
from sweeper.search.outcome import Outcome
from sweeper.search.trust import believable
from sweeper.speculation import SpeculationConfig


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
