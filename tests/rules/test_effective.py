"""SGLang's rules for speculation configs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.rules.algorithms import ALGORITHMS
from sweeper.rules.context import Context
from sweeper.rules.effective import InvalidSpeculationError, Resolution, effective
from sweeper.speculation import NO_SPECULATION, SpeculationConfig, tree_capacity

contexts = st.builds(
    Context,
    version=st.sampled_from(["0.5.2", "0.5.9", "0.5.12", "0.5.13", "0.5.18", "0.5.23", "0.7.1"]),
    device=st.sampled_from(["cuda", "cpu"]),
    attention_backend=st.sampled_from([None, "fa3", "triton", "flashinfer", "trtllm_mha", "flashmla"]),
    page_size=st.sampled_from([None, 1, 16]),
    dp_attention=st.booleans(),
    draft_architectures=st.sampled_from([{}, {"d": "Gemma4AssistantForCausalLM"}]),
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


@given(configs, contexts)
def test_effective_is_idempotent_and_bounded(config: SpeculationConfig, context: Context) -> None:
    try:
        result = effective(config, context).effective
    except InvalidSpeculationError:
        return
    assert effective(result, context) == Resolution(result)
    if config.algorithm not in ("NGRAM", "DFLASH", "DSPARK", "UNO"):
        assert 2 <= result.num_draft_tokens <= 1 + tree_capacity(result.num_steps, result.topk)
        if result.topk == 1:
            assert result.num_draft_tokens == result.num_steps + 1


@pytest.mark.parametrize(
    ("config", "context", "rule"),
    [
        (eagle3(3, 4, 8), Context(attention_backend="trtllm_mha"), "trtllm_mha backend only supports topk 1"),
        (eagle3(3, 4, 8), Context("0.5.9", attention_backend="triton", page_size=16), "flashinfer or fa3"),
        (eagle3(3, 4, 8), Context(attention_backend="flashmla"), "page_size 64"),
        (eagle3(3, 4, 8), Context("0.5.9", spec_v2=True), "second engine"),
        (eagle3(3, 1, 4), Context(decode_attention_backend="torch_native"), "no draft runs on"),
        (eagle3(3, 1, 4), Context("0.5.12", device="cpu"), "not on device cpu"),
        (eagle3(3, 1, 4), Context("0.5.18", pipeline_parallel=2), "pipeline parallelism"),
        (SpeculationConfig("STANDALONE", "d", 3, 1, 4), Context(dp_attention=True), "DP attention"),
        (SpeculationConfig("NGRAM", "none", 1, 4, 8), Context("0.5.2"), "has no NGRAM"),
        (SpeculationConfig("NGRAM", "none", 1, 4, 8), Context("0.5.15", device="cpu"), "only on device cuda"),
        (
            SpeculationConfig("NGRAM", "none", 1, 4, 8, (("max_trie_depth", 9),)),
            Context("0.5.9"),
            "has no max_trie_depth",
        ),
        (SpeculationConfig("DFLASH", "d", 1, 1, 16), Context(device="cpu"), "not on device cpu"),
        (SpeculationConfig("UNO", "d", 1, 1, 16), Context(tensor_parallel=2), "single GPU"),
        (SpeculationConfig("UNO", "d", 2, 2, 16), Context(), "UNO's tree"),
        (
            SpeculationConfig("NEXTN", "none", 3, 1, 4),
            Context(target_architecture="LlamaForCausalLM"),
            "has none",
        ),
        (
            eagle3(3, 1, 4),
            Context(draft_architectures={"d": "Gemma4AssistantForCausalLM"}),
            "needs algorithm",
        ),
        (
            SpeculationConfig("EAGLE", "d", 3, 4, 8),
            Context(target_architecture="DeepseekV3ForCausalLM", attention_backend="flashinfer"),
            "latent attention",
        ),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, (str, SpeculationConfig)) else "",
)
def test_rejections(config: SpeculationConfig, context: Context, rule: str) -> None:
    with pytest.raises(InvalidSpeculationError, match=rule):
        effective(config, context)


@pytest.mark.parametrize(
    ("config", "context"),
    [
        (eagle3(3, 2, 2), Context("0.5.12")),
        (eagle3(3, 4, 8), Context("0.5.13", attention_backend="triton", page_size=16)),
        (eagle3(3, 4, 8), Context(attention_backend="fa3", page_size=16)),
        (
            SpeculationConfig("NEXTN", "none", 3, 1, 4),
            Context(target_architecture="DeepseekV3ForCausalLM", attention_backend="fa3"),
        ),
        (SpeculationConfig("DSPARK", "none", 1, 1, 8), Context()),
        (SpeculationConfig("DFLASH", "d", 1, 1, 16), Context("0.5.11")),
        (SpeculationConfig("UNO", "d", 4, 2, 8), Context()),
    ],
    ids=lambda value: str(value) if isinstance(value, SpeculationConfig) else value.version,
)
def test_valid_as_they_are(config: SpeculationConfig, context: Context) -> None:
    assert effective(config, context) == Resolution(config)


def test_an_assistant_draft_of_gemma_4_runs_under_another_algorithm() -> None:
    context = Context(draft_architectures={"d": "Gemma4AssistantForCausalLM"})
    resolution = effective(SpeculationConfig("NEXTN", "d", 3, 1, 4), context)
    assert resolution.effective == SpeculationConfig("FROZEN_KV_MTP", "d", 3, 1, 4)
    assert resolution.overrides[0].parameter == "algorithm"


def test_a_release_from_the_future_gets_the_newest_rules() -> None:
    with pytest.raises(InvalidSpeculationError, match="from 4"):
        effective(eagle3(3, 2, 2), Context("0.6.0"))


@pytest.mark.parametrize(
    ("name", "values", "config", "flags"),
    [
        (
            "EAGLE3",
            {"num_steps": 3},
            eagle3(3, 1, 4),
            {
                "speculative-num-steps": 3,
                "speculative-eagle-topk": 1,
                "speculative-num-draft-tokens": 4,
            },
        ),
        (
            "NGRAM",
            {"breadth": 4, "max_trie_depth": 24},
            SpeculationConfig("NGRAM", "d", 0, 4, 12, (("max_trie_depth", 24),)),
            {
                "speculative-ngram-max-bfs-breadth": 4,
                "speculative-num-draft-tokens": 12,
                "speculative-ngram-max-trie-depth": 24,
            },
        ),
        (
            "DFLASH",
            {"block_size": 16},
            SpeculationConfig("DFLASH", "d", 1, 1, 16),
            {
                "speculative-num-steps": 1,
                "speculative-eagle-topk": 1,
                "speculative-num-draft-tokens": 16,
            },
        ),
        (
            "DSPARK",
            {"gamma": 7},
            SpeculationConfig("DSPARK", "d", 1, 1, 8),
            {"speculative-num-steps": 1, "speculative-eagle-topk": 1, "speculative-dspark-block-size": 7},
        ),
    ],
)
def test_every_algorithm_has_parameters_and_flags_of_its_own(
    name: str, values: dict[str, int], config: SpeculationConfig, flags: dict[str, int]
) -> None:
    algorithm = ALGORITHMS[name]
    assert algorithm.request("d", values) == config
    assert algorithm.flags(config) == flags
