"""Which hidden states a draft gets, and what would have to change for it to get those it was trained on."""

import pytest

from sweeper.drafts.wiring import Tap, Wiring, alternatives, ids_for, remedy, served_wiring

LLAMA, DEEPSEEK = "LlamaForCausalLM", "DeepseekV3ForCausalLM"


def config(*ids: int, **more: object) -> dict[str, object]:
    return {"eagle_config": {"eagle_aux_hidden_state_layer_ids": list(ids)}, **more}


def wiring(*indices: int) -> Wiring:
    return Wiring(tuple(map(Tap, indices)))


@pytest.mark.parametrize(
    ("draft", "architecture", "expected"),
    [
        ({}, LLAMA, [2, 30, 58]),
        (
            {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]},
            LLAMA,
            [2, 30, 58],
        ),  # read inside eagle_config only
        (config(1, 29, 57), LLAMA, [2, 30, 58]),
        (config(57, 1, 29), LLAMA, [2, 30, 58]),  # always in the order of the layers
        (config(1, 1, 29), LLAMA, [2, 30]),
        (config(1, 29, 60), LLAMA, [2, 30]),  # the state after the last layer is never reached
        (config(3, 31, 59), DEEPSEEK, [3, 31, 59]),
        (config(1, 29, 57), DEEPSEEK, [2, 30, 58]),
        (config(3, 30, 61), "GptOssForCausalLM", [3, 30, 61]),
    ],
)
def test_what_sglang_serves(draft: dict[str, object], architecture: str, expected: list[int]) -> None:
    assert served_wiring(draft, 61, architecture) == wiring(*expected)


def test_the_original_case_is_among_the_alternatives() -> None:
    others = alternatives(served_wiring(config(3, 31, 59), 61, DEEPSEEK), 61)
    assert wiring(0, 3, 31) in others
    assert {wiring(2, 30, 58), wiring(4, 32, 60), wiring(59, 31, 3), wiring(0, 1, 2)} <= set(others)
    assert wiring(3, 31, 59) not in others
    assert len(set(others)) == len(others)


def test_names_say_embed_and_last() -> None:
    assert wiring(0, 3, 61).name(61) == "[embed, 3, last]"
    served = wiring(3)
    assert "after the draft's norm" in Wiring((Tap(3),), True).name(61, served)


@pytest.mark.parametrize(
    ("architecture", "trained", "ids"),
    [
        (LLAMA, (0, 3, 31), [-1, 2, 30]),
        (DEEPSEEK, (0, 3, 31), [0, 3, 31]),
        (DEEPSEEK, (2, 30, 58), [2, 30, 58]),
        (DEEPSEEK, (1, 30, 58), None),  # a first id of 1 means layer 2 there
    ],
)
def test_the_ids_that_serve_a_wiring(
    architecture: str, trained: tuple[int, ...], ids: list[int] | None
) -> None:
    assert ids_for(wiring(*trained), 61, architecture) == ids
    if ids:
        assert served_wiring(config(*ids), 61, architecture) == wiring(*trained)


def test_the_remedy_is_a_config_change_or_says_that_there_is_none() -> None:
    served = wiring(3, 31, 59)
    assert "[0, 3, 31]" in remedy(wiring(0, 3, 31), served, 61, DEEPSEEK)
    assert "order [3, 1, 2]" in remedy(wiring(31, 59, 3), served, 61, LLAMA)
    assert "last layer's output" in remedy(wiring(3, 31, 61), served, 61, LLAMA)
    assert "before the norms" in remedy(Wiring((Tap(3, True),)), served, 61, LLAMA)
    assert "norm_output" in remedy(Wiring(served.taps, True), served, 61, LLAMA)
