"""Adaptive policies: how they are written, what SGLang makes of them, and which config they are part of."""

from __future__ import annotations

import json

import pytest

from sweeper.adaptive import BUILT_IN, AdaptivePolicy, policy_of_best
from sweeper.errors import StudyFileError
from sweeper.rules.context import Context
from sweeper.server.adaptive_file import adaptive_flags, write_adaptive_file
from sweeper.server.setup import shared_pins
from sweeper.space import enumerate_space
from sweeper.speculation import SpeculationConfig
from sweeper.study_file.reading import load_study_file
from tests.conftest import WriteStudy

POLICY = "1:3 2:1 8:0"


def adaptive(steps: int = 3, topk: int = 1, policy: str = POLICY) -> SpeculationConfig:
    return SpeculationConfig("EAGLE3", "a", steps, topk, steps + 1, (("adaptive", policy),))


@pytest.mark.parametrize("text", [POLICY, "1:1,3,5 8:0,1", "1:0"])
def test_a_policy_is_written_as_it_was_read(text: str) -> None:
    assert str(AdaptivePolicy.parse(text)) == text


@pytest.mark.parametrize("text", ["", "3", "2:1", "1:3 1:0", "8:0 1:3", "1:3,", "1:-1", "1: 3", "1:3; 8:0"])
def test_what_is_no_policy_says_how_one_is_written(text: str) -> None:
    with pytest.raises(ValueError, match="BATCH:STEPS"):
        AdaptivePolicy.parse(text)


def test_the_file_holds_one_slot_per_batch_size() -> None:
    assert json.loads(AdaptivePolicy.parse("1:5,3 16:0").file_text()) == {
        "1": {"candidate_steps": [3, 5]},
        "16": {"candidate_steps": [0]},
    }


def test_a_load_holds_up_to_the_geometric_middle_to_the_next() -> None:
    assert str(policy_of_best([(1, 5), (4, 3), (16, 0)])) == "1:5 2:3 8:0"
    assert str(policy_of_best([(1, 5), (2, 5), (64, 1)])) == "1:5 11:1"
    assert str(policy_of_best([(4, 2)])) == "1:2"


def test_neighbouring_loads_keep_slots_of_their_own() -> None:
    assert str(policy_of_best([(1, 5), (2, 3), (3, 1)])) == "1:5 2:3 3:1"


def test_a_grid_may_hold_policies(write_study: WriteStudy) -> None:
    grid = {"algorithm": "EAGLE3", "drafts": "a", "num_steps": [1, 3], "adaptive": [POLICY, "1:1"]}
    study = load_study_file(write_study(space={"grids": [grid]}))
    found = enumerate_space(study.space, Context())
    assert {str(c.effective) for c in found.candidates} == {
        "EAGLE3 a 1/1/2 adaptive=1:1",
        f"EAGLE3 a 3/1/4 adaptive={POLICY}",
    }
    assert all("longest chain of the adaptive policy" in rejection.rule for rejection in found.rejections)


def test_a_wrong_policy_is_an_error_with_its_line(write_study: WriteStudy) -> None:
    grid = {"algorithm": "EAGLE3", "drafts": "a", "num_steps": 3, "adaptive": "3,1"}
    with pytest.raises(
        StudyFileError, match=r"study.yaml:\d+: space.grids\[0\].adaptive.*no adaptive policy"
    ):
        load_study_file(write_study(space={"grids": [grid]}))


@pytest.mark.parametrize(
    ("context", "rule"),
    [
        (Context(dp_attention=True), "DP attention"),
        (Context(version="0.5.12"), "has no adaptive"),
    ],
)
def test_what_sglang_would_run_statically_is_rejected(
    write_study: WriteStudy, context: Context, rule: str
) -> None:
    grid = {"algorithm": "EAGLE3", "drafts": "a", "num_steps": 3, "adaptive": POLICY}
    study = load_study_file(write_study(space={"grids": [grid]}))
    [rejection] = enumerate_space(study.space, context).rejections
    assert rule in rejection.rule


def test_the_built_in_policy_needs_no_file() -> None:
    assert adaptive_flags(adaptive(7, policy="default")) == {"speculative-adaptive": True}
    assert max(BUILT_IN.steps) == 7
    assert adaptive_flags(SpeculationConfig("EAGLE3", "a", 3, 1, 4)) == {}


def test_on_the_test_bed_both_arms_do_without_graphs_for_it(write_study: WriteStudy) -> None:
    """SGLang has none for adaptive chains on a CPU, and does not start."""
    plain = {"algorithm": "EAGLE3", "drafts": "a", "num_steps": 3}
    for grid, pinned in ((plain, False), ({**plain, "adaptive": POLICY}, True)):
        study = load_study_file(write_study(space={"grids": [grid]}))
        assert ("disable-decode-cuda-graph" in {pin.flag for pin in shared_pins(study, "0.5.23")}) is pinned


def test_the_file_is_there_when_the_flag_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = adaptive_flags(adaptive())["speculative-adaptive-config"]
    write_adaptive_file(adaptive())
    with open(str(path)) as file:
        assert json.load(file)["8"] == {"candidate_steps": [0]}
