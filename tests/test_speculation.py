"""SGLang's rules for speculation configs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.speculation import (
    ALGORITHMS,
    NO_SPECULATION,
    InvalidSpeculationError,
    SpeculationConfig,
    effective,
    tree_capacity,
)

configs = st.builds(
    SpeculationConfig,
    algorithm=st.sampled_from(sorted(ALGORITHMS)),
    draft=st.just("d"),
    num_steps=st.integers(0, 20),
    topk=st.integers(0, 10),
    num_draft_tokens=st.integers(0, 70),
)


def eagle3(steps: int, topk: int, tokens: int) -> SpeculationConfig:
    return SpeculationConfig("EAGLE3", "d", steps, topk, tokens)


def test_topk_1_forces_one_token_more_than_steps() -> None:
    resolution = effective(eagle3(4, 1, 24))
    assert resolution.effective == eagle3(4, 1, 5)
    assert [str(o) for o in resolution.overrides] == [
        "num_draft_tokens 24 -> 5: topk 1 forces num_draft_tokens = num_steps + 1"
    ]


def test_a_chain_asked_for_as_it_runs_is_not_overridden() -> None:
    assert effective(eagle3(3, 1, 4)).overrides == ()


@pytest.mark.parametrize(("steps", "topk", "capacity"), [(1, 4, 4), (3, 2, 10), (4, 4, 52), (5, 8, 264)])
def test_tree_capacity(steps: int, topk: int, capacity: int) -> None:
    assert tree_capacity(steps, topk) == capacity


@pytest.mark.parametrize("tokens", [4, 11])
def test_trees_from_steps_plus_one_up_to_their_capacity_are_valid(tokens: int) -> None:
    assert effective(eagle3(3, 2, tokens)).effective == eagle3(3, 2, tokens)


@pytest.mark.parametrize("tokens", [0, 1, 2, 3, 12, 16])
def test_trees_that_crash_the_server_are_rejected(tokens: int) -> None:
    with pytest.raises(InvalidSpeculationError, match="from 4 .* to 11"):
        effective(eagle3(3, 2, tokens))


def test_ngram_derives_its_steps() -> None:
    asked = SpeculationConfig("NGRAM", "none", 1, 4, 12)
    assert effective(asked).effective == SpeculationConfig("NGRAM", "none", 3, 4, 12)


def test_no_speculation_is_itself() -> None:
    assert effective(NO_SPECULATION).effective == NO_SPECULATION
    assert str(NO_SPECULATION) == "no speculation"


@given(configs)
def test_effective_is_idempotent_and_bounded(config: SpeculationConfig) -> None:
    try:
        result = effective(config).effective
    except InvalidSpeculationError:
        return
    assert effective(result).effective == result
    assert effective(result).overrides == ()
    if config.algorithm != "NGRAM":
        assert result.num_steps + 1 <= result.num_draft_tokens
        assert result.num_draft_tokens <= 1 + tree_capacity(result.num_steps, result.topk)
