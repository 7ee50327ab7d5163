"""Tiny checkpoints for tests: a config.json and a safetensors file of zeros, in a millisecond and without torch."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sweeper.drafts.preflight.layouts import dense_layout, eagle3_layout

Shape = tuple[int, ...]
Values = Sequence[int]

TARGET: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "num_hidden_layers": 12,
    "vocab_size": 64,
    "max_position_embeddings": 512,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 1,
}
EAGLE3: dict[str, Any] = {
    **TARGET,
    "architectures": ["LlamaForCausalLMEagle3"],
    "num_hidden_layers": 1,
    "draft_vocab_size": 32,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 5, 8]},
}
TARGET_IDS = [*range(20), *range(40, 52)]
"""Of the target's vocabulary, what the draft's 32 ids stand for."""

D2T = [target - draft for draft, target in enumerate(TARGET_IDS)]

TOKENIZER: dict[str, Any] = {
    "model": {"type": "BPE", "vocab": {f"t{i}": i for i in range(60)}},
    "added_tokens": [],
}

_TYPES = {"I64": "q", "BOOL": "?"}


def write_safetensors(
    path: Path, shapes: Mapping[str, Shape], values: Mapping[str, Values] | None = None
) -> None:
    """Zeros of type BF16 in the given shapes, and int64 tensors (booleans for t2d) with the given values."""
    header: dict[str, Any] = {}
    body, at = b"", 0
    for name, shape in shapes.items():
        size = 2
        for length in shape:
            size *= length
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size]}
        body, at = body + bytes(size), at + size
    for name, numbers in (values or {}).items():
        dtype = "BOOL" if name.endswith("t2d") else "I64"
        packed = struct.pack(f"<{len(numbers)}{_TYPES[dtype]}", *numbers)
        header[name] = {"dtype": dtype, "shape": [len(numbers)], "data_offsets": [at, at + len(packed)]}
        body, at = body + packed, at + len(packed)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def write_checkpoint(
    directory: Path,
    config: Mapping[str, Any],
    shapes: Mapping[str, Shape],
    values: Mapping[str, Values] | None = None,
) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    write_safetensors(directory / "model.safetensors", shapes, values)
    return directory


def write_target(directory: Path, **changes: Any) -> Path:
    config = {**TARGET, **changes}
    write_checkpoint(directory, config, dense_layout(config, "LlamaForCausalLM").required)
    (directory / "tokenizer.json").write_text(json.dumps(TOKENIZER))
    return directory


def write_eagle3(directory: Path, **changes: Any) -> Path:
    """A healthy head for ``write_target``'s target, as far as ``changes`` in its config.json leave it so."""
    config = {**EAGLE3, **changes}
    return write_checkpoint(directory, config, eagle3_layout(EAGLE3).required, {"d2t": D2T})
