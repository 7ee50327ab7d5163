"""Which hidden states of the target an EAGLE3 draft is fed. Pure functions.

SGLang compares a list of numbers with i *before* it runs layer i: a number i captures the input of layer i, which is
the output of layer i-1 (0: the embedding). Without ids of its own a draft gets [2, n//2, n-3] of n layers. Ids from the
draft's config.json name outputs, so 1 is added to each, but for a few target classes. What is captured is
concatenated from the first layer to the last, whatever the order of the list; a number that comes twice is
captured once, one that no layer has not at all.

Source: ``set_eagle3_layers_to_capture`` of every target class of SGLang 0.5.23.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sweeper.releases import NEWEST_KNOWN, release

_LLAMA = "Llama Llama4 Mistral Ministral3 Phi3 InternLM3 TeleFLM IQuestCoder"
_QWEN = (
    "Qwen2 Qwen2Moe Qwen2_5_VL Qwen3 Qwen3Moe Qwen3Next Qwen3VL Qwen3VLMoe Qwen3_5 Qwen3_5Moe Qwen4Exp Mellum"
)
_DEEPSEEK = "DeepseekV2 DeepseekV3 DeepseekV32 GlmMoeDsa MistralLarge3 KimiK25"
_OTHERS = (
    "Apertus BailingMoE BailingMoe BailingMoeV2 SarvamMoE Cosmos3 InternS1Pro InternS2Mobius InternS2Preview "
    "ExaoneMoE ExaoneMoe Gemma3 Gemma4 Gemma4Unified Glm4Moe Glm4MoeLite Glm5Next GptOss LongcatFlash MindSpore "
    "MiniMaxM2 MiniMaxM3Sparse"
)
CAPTURING = frozenset(" ".join((_LLAMA, _QWEN, _DEEPSEEK, _OTHERS)).split())
"""Targets that can feed an EAGLE3 draft in 0.5.23, by their names up to "For"; older releases know fewer."""

_TAKEN_AS_INPUTS = frozenset(_DEEPSEEK.split()) | {"Glm4MoeLite"}
"""Targets that add 1 only to a list that begins with 1."""

_PAST_THE_END = frozenset({"GptOss", "MiniMaxM3Sparse"})
"""Targets that can hand over the output of their last layer."""


def stem(architecture: str) -> str:
    """``LlamaForCausalLM`` -> ``Llama``"""
    return architecture.split("For")[0]


def can_capture(architecture: str) -> bool:
    return stem(architecture) in CAPTURING


def default_inputs(layers: int) -> tuple[int, ...]:
    """The numbers that SGLang captures for a draft without ids.

    >>> default_inputs(32)
    (2, 16, 29)
    """
    return (2, layers // 2, layers - 3)


@dataclass(frozen=True)
class Wiring:
    """What a target captures for a draft.

    ``marks`` are the layers whose input SGLang is told to capture, as listed; ``inputs`` those it really captures, in
    the order in which the draft gets them; ``as_outputs``: whether 1 was added to the ids. ``ids`` is None for
    SGLang's default. ``past_the_end``: whether the output of the last layer can be captured as the input of a layer
    after it.
    """

    ids: tuple[int, ...] | None
    marks: tuple[int, ...]
    layers: int
    as_outputs: bool
    past_the_end: bool = False

    @property
    def places(self) -> range:
        """The numbers that can be captured at all."""
        return range(self.layers + self.past_the_end)

    @property
    def inputs(self) -> tuple[int, ...]:
        return tuple(i for i in self.places if i in self.marks)

    @property
    def unreached(self) -> tuple[int, ...]:
        """The listed ids (or default numbers) that no layer has."""
        listed = self.ids or self.marks
        return tuple(i for i, mark in zip(listed, self.marks, strict=True) if mark not in self.places)

    @property
    def ascending(self) -> bool:
        return list(self.marks) == sorted(self.marks)

    @property
    def repeats(self) -> bool:
        return len(set(self.marks)) < len(self.marks)

    def __str__(self) -> str:
        """``outputs of layers 1, 15, 28 (SGLang's default [2, 16, 29] for 32 layers, captured before each)``"""
        outputs = ", ".join(str(i - 1) if i else "the embedding" for i in self.inputs)
        listed = list(self.ids or self.marks)
        if self.ids is None:
            how = f"SGLang's default {listed} for {self.layers} layers"
        else:
            how = f"eagle_aux_hidden_state_layer_ids {listed}"
        how += ", taken as outputs" if self.as_outputs else ", each taken as the input of its layer"
        return f"outputs of layers {outputs or 'none'} ({how})"


def wiring(architecture: str, ids: Sequence[int] | None, layers: int, version: str = NEWEST_KNOWN) -> Wiring:
    """What a target of ``layers`` layers captures for a draft with these ids; None: SGLang's default."""
    if ids is None:
        shift = 1 if stem(architecture) == "MiniMaxM3Sparse" and "Conditional" in architecture else 0
        return Wiring(None, tuple(i + shift for i in default_inputs(layers)), layers, as_outputs=False)
    as_outputs, past_the_end = True, stem(architecture) in _PAST_THE_END
    if stem(architecture) in _TAKEN_AS_INPUTS:
        as_outputs = ids[0] == 1
    elif stem(architecture) == "GptOss":
        past_the_end = release(version) >= (0, 5, 23)
        as_outputs = not past_the_end or max(ids) != layers
    return Wiring(tuple(ids), tuple(i + as_outputs for i in ids), layers, as_outputs, past_the_end)
