"""From grids to distinct valid candidates."""

from typing import Any

from sweeper.config import Space
from sweeper.space import enumerate_space


def space(*grids: dict[str, Any]) -> Space:
    return Space.model_validate(
        {"drafts": {"a": {"path": "o/a"}, "b": {"path": "o/b"}}, "grids": list(grids)}
    )


def test_every_combination_is_a_candidate_a_merge_or_a_rejection() -> None:
    found = enumerate_space(
        space({"algorithm": "EAGLE3", "num_steps": [1, 3], "topk": [1, 2], "num_draft_tokens": [4, 8, 16]})
    )
    assert found.asked == 2 * 2 * 2 * 3
    assert found.asked == len(found.candidates) + len(found.merges) + len(found.rejections)
    shapes = {c.effective.shape for c in found.candidates}
    assert shapes == {"1/1/2", "3/1/4", "3/2/4", "3/2/8"}


def test_requests_that_run_alike_are_merged_with_the_rule() -> None:
    grid = {"algorithm": "EAGLE3", "drafts": "a", "num_steps": 3, "topk": 1, "num_draft_tokens": [4, 16]}
    found = enumerate_space(space(grid))
    assert [c.requested.shape for c in found.candidates] == ["3/1/4"]
    assert [(m.requested.shape, m.effective.shape) for m in found.merges] == [("3/1/16", "3/1/4")]
    assert "topk 1 forces" in found.merges[0].rule


def test_no_effective_config_stands_twice() -> None:
    grid = {"algorithm": "EAGLE3", "num_steps": [1, 2], "topk": 1}
    found = enumerate_space(space(grid, grid))
    effectives = [c.effective for c in found.candidates]
    assert len(effectives) == len(set(effectives)) == 4
    assert len(found.merges) == 4


def test_algorithms_without_a_draft_use_none_of_the_drafts() -> None:
    found = enumerate_space(
        space({"algorithm": "NGRAM", "breadth": 2}, {"algorithm": "NEXTN", "num_steps": 2})
    )
    assert {c.effective.draft for c in found.candidates} == {"none"}
