"""What a target captures for a draft, worked out by hand from the classes of SGLang 0.5.23."""

from __future__ import annotations

import pytest

from sweeper.drafts.preflight.wiring import can_capture, default_inputs, wiring

LLAMA, KIMI, GPT = "LlamaForCausalLM", "KimiK25ForConditionalGeneration", "GptOssForCausalLM"


def test_the_default_captures_before_a_layer() -> None:
    assert default_inputs(61) == (2, 30, 58)
    found = wiring(LLAMA, None, 32)
    assert found.inputs == (2, 16, 29)
    assert str(found).startswith("outputs of layers 1, 15, 28 (SGLang's default [2, 16, 29] for 32 layers")


def test_ids_are_outputs_so_the_default_written_out_is_one_less() -> None:
    assert wiring(LLAMA, (1, 15, 28), 32).inputs == wiring(LLAMA, None, 32).inputs


@pytest.mark.parametrize(
    ("target", "ids", "inputs"),
    [
        (KIMI, (3, 31, 59), (3, 31, 59)),  # DeepSeek's class takes them as they are,
        (KIMI, (1, 29, 57), (2, 30, 58)),  # unless the list begins with 1
        (GPT, (24, 30, 36), (24, 30, 36)),  # of 36 layers: the last one's output
        (GPT, (1, 17, 32), (2, 18, 33)),
        (LLAMA, (8, 1, 5), (2, 6, 9)),
        (LLAMA, (-1, 3, 30), (0, 4, 31)),
    ],
)
def test_what_is_captured_in_which_order(target: str, ids: tuple[int, ...], inputs: tuple[int, ...]) -> None:
    layers = {KIMI: 61, GPT: 36, LLAMA: 32}[target]
    assert wiring(target, ids, layers).inputs == inputs


def test_an_older_release_does_not_reach_the_last_layer_of_gpt_oss() -> None:
    found = wiring(GPT, (24, 30, 36), 36, "0.5.22")
    assert found.inputs == (25, 31)
    assert found.unreached == (36,)


def test_the_embedding_is_called_so() -> None:
    assert str(wiring(LLAMA, (-1, 3, 30), 32)).startswith("outputs of layers the embedding, 3, 30 ")


def test_families_that_capture() -> None:
    assert can_capture("Qwen3MoeForCausalLM")
    assert not can_capture("OPTForCausalLM")
