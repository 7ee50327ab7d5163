"""Scaled rotary embeddings, against transformers."""

from typing import Any

import pytest
import torch

from sweeper.drafts.layers import LayerShape, Rotary

BASE: dict[str, Any] = {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 128,
    "rope_theta": 500000.0, "max_position_embeddings": 131072,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}  # fmt: skip


@pytest.mark.parametrize("scaling", [None, {"rope_type": "linear", "factor": 4.0}, LLAMA3])
def test_angles_are_those_of_transformers(scaling: dict[str, Any] | None) -> None:
    llama = pytest.importorskip("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(**BASE, rope_scaling=scaling)
    positions = torch.tensor([0, 1, 700, 9000, 100000])
    cos, sin = llama.LlamaRotaryEmbedding(config)(torch.zeros(1, 5, 256), positions[None])
    ours = Rotary.at(positions, LayerShape.from_config({**BASE, "rope_scaling": scaling}))
    torch.testing.assert_close(ours.cos, cos[0], rtol=0, atol=0.02)  # 100,000 radians in float32
    torch.testing.assert_close(ours.sin[:3], sin[0, :3], rtol=0, atol=1e-3)


def test_a_scaling_survives_the_config() -> None:
    shape = LayerShape.from_config({**BASE, "rope_scaling": LLAMA3})
    assert shape.rope_scaling is not None
    assert shape.rope_scaling.high_freq_factor == 4.0
