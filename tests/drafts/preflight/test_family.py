"""Siblings are alike in everything but their weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from sweeper.drafts.preflight.checkpoint import open_checkpoint
from sweeper.drafts.preflight.family import family
from tests.checkpoints import D2T, EAGLE3, eagle3_layout, write_checkpoint, write_eagle3


def of(directory: Path) -> str:
    return family(open_checkpoint(str(directory)))


def test_other_weights_and_another_name_make_a_sibling(tmp_path: Path) -> None:
    first = write_eagle3(tmp_path / "first")
    sibling = write_eagle3(tmp_path / "second", _name_or_path="step 2000", transformers_version="5.0")
    weights = sibling / "model.safetensors"
    content = bytearray(weights.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(range(64))
    weights.write_bytes(content)
    assert of(first) == of(sibling) != ""


@pytest.mark.parametrize("change", [{"rope_theta": 1e4}, {"eagle_config": {}}])
def test_another_config_makes_a_stranger(tmp_path: Path, change: dict[str, object]) -> None:
    assert of(write_eagle3(tmp_path / "first")) != of(write_eagle3(tmp_path / "second", **change))


def test_another_vocabulary_map_makes_a_stranger(tmp_path: Path) -> None:
    first = write_eagle3(tmp_path / "first")
    shapes = eagle3_layout(EAGLE3).required
    other = write_checkpoint(tmp_path / "second", EAGLE3, shapes, {"d2t": [*D2T[:-1], D2T[-1] + 1]})
    assert of(first) != of(other)


@pytest.mark.parametrize("change", [{"tie_word_embeddings": True}, {"draft_vocab_size": None}])
def test_a_head_that_shares_the_targets_output_matrix_has_no_siblings(
    tmp_path: Path, change: dict[str, object]
) -> None:
    """Replacing it would change the target."""
    assert of(write_eagle3(tmp_path / "shared", **change)) == ""


def test_a_head_on_the_whole_vocabulary_has_siblings(tmp_path: Path) -> None:
    config = {**EAGLE3, "draft_vocab_size": EAGLE3["vocab_size"]}
    shapes = eagle3_layout(config).required
    assert of(write_checkpoint(tmp_path / "whole", config, shapes)) != ""
