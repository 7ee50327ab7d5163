"""The EAGLE-3 draft head, in the layout of SGLang's ``LlamaForCausalLMEagle3`` checkpoints.

The head reads the target's hidden states of a few layers ("features"), fuses them with ``fc``, and runs
one layer over the pair (embedding of the next token, feature).  Its output replaces the feature in the
following draft step.  Method: Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language
Models via Training-Time Test", 2025.

Shapes: B sequences, T positions, h hidden size, A captured layers, V draft vocabulary.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sweeper.drafts.layers import Attention, LayerShape, Mlp, RMSNorm, Rotary, causal_scores
from sweeper.errors import SweeperError


class Eagle3Error(SweeperError, ValueError):
    """A checkpoint that this head cannot represent."""


@dataclass(frozen=True)
class Eagle3Config:
    """What the head needs from ``config.json``; ``raw`` keeps the whole file."""

    layer: LayerShape
    draft_vocab_size: int
    target_hidden_size: int
    num_aux_hidden_states: int
    raw: dict[str, Any]
    norm_before_fc: bool = False
    """Norm of all features together, before ``fc``."""
    fc_norm: bool = False
    """Norm of each feature on its own, before ``fc``."""
    norm_output: bool = False
    """A later step reads the output of the one before after the head's norm instead of before it."""

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> "Eagle3Config":
        """Read a parsed ``config.json``; raises Eagle3Error where the head could not follow it."""
        eagle = config.get("eagle_config") or {}
        ids = eagle.get("eagle_aux_hidden_state_layer_ids") or [0, 0, 0]
        if config.get("num_hidden_layers", 1) != 1:
            raise Eagle3Error(f"num_hidden_layers is {config['num_hidden_layers']}, only 1 is supported")
        try:
            return cls(
                layer=LayerShape.from_config(config),
                draft_vocab_size=config.get("draft_vocab_size") or config["vocab_size"],
                target_hidden_size=config.get("target_hidden_size") or config["hidden_size"],
                num_aux_hidden_states=config.get("num_aux_hidden_states") or len(ids),
                raw=config,
                norm_before_fc=bool(eagle.get("norm_before_fc", config.get("norm_before_fc"))),
                fc_norm=bool(config.get("fc_norm") or config.get("use_aux_norm")),
                norm_output=bool(config.get("norm_output")),
            )
        except (KeyError, ValueError) as error:
            raise Eagle3Error(f"config.json: {error}") from error


class Eagle3Layer(nn.Module):
    """The one layer; keeps the fused feature as its residual stream."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)  # of the embedding
        self.hidden_norm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)  # of the feature
        self.self_attn = Attention(shape, 2 * shape.hidden_size)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = Mlp(shape)


class Eagle3Head(nn.Module):
    """The head without an embedding: it uses the target's."""

    d2t: Tensor | None

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        size, eps = config.layer.hidden_size, config.layer.rms_norm_eps
        count, width = config.num_aux_hidden_states, config.target_hidden_size
        self.config = config
        self.input_norm = RMSNorm(count * width, eps) if config.norm_before_fc else None
        self.fc_norm = nn.ModuleList(RMSNorm(width, eps) for _ in range(count)) if config.fc_norm else None
        self.fc = nn.Linear(count * width, size, bias=bool(config.raw.get("bias")))
        self.midlayer = Eagle3Layer(config.layer)
        self.norm = RMSNorm(size, eps)
        self.lm_head = nn.Linear(size, config.draft_vocab_size, bias=False)
        self.register_buffer("d2t", None)

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """Translate ids of the draft vocabulary into the target's (``d2t`` holds the difference)."""
        return draft_ids if self.d2t is None else draft_ids + self.d2t[draft_ids]

    def fuse(self, features: Tensor) -> Tensor:
        """[..., A * h] -> [..., h]; features that are fused already (A * h = h) pass, as they do in the server."""
        if features.shape[-1] == self.norm.weight.shape[0]:
            return features
        if self.input_norm is not None:
            features = self.input_norm(features)
        if self.fc_norm is not None:
            chunks = features.chunk(len(self.fc_norm), dim=-1)
            features = torch.cat([norm(c) for norm, c in zip(self.fc_norm, chunks, strict=True)], dim=-1)
        fused: Tensor = self.fc(features)
        return fused

    def project(self, embeddings: Tensor, hidden: Tensor, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scaled queries, keys and values [B, H, T, D] of the pairs (``embeddings``, ``hidden``), both [B, T, h].

        ``positions`` [T] are those of the features that the pairs descend from, plus the steps taken since.
        """
        layer = self.midlayer
        pair = torch.cat((layer.input_layernorm(embeddings), layer.hidden_norm(hidden)), dim=-1)
        return layer.self_attn.project(pair, Rotary.at(positions, self.config.layer))

    def advance(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """The layer's output [B, T, h] from its residual stream and what attention gave, [B, H, T, D]."""
        layer = self.midlayer
        hidden = hidden + layer.self_attn.merge(attended)
        output: Tensor = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return output

    def logits(self, output: Tensor) -> Tensor:
        """[..., h] -> [..., V]"""
        result: Tensor = self.lm_head(self.norm(output))
        return result

    def fed_back(self, output: Tensor) -> Tensor:
        """What the next step reads in place of a feature, [..., h]."""
        result: Tensor = self.norm(output) if self.config.norm_output else output
        return result

    def unroll(self, features: Tensor, embeddings: Tensor, depth: int) -> list[Tensor]:
        """Logits of ``depth`` chained draft steps from every position at once.

        ``features`` [B, T, A * h] of the target at positions 0..T-1; ``embeddings`` [B, T + depth - 1, h]
        of the tokens at positions 1..T+depth-1.  Entry j of the result, [B, T, V], is the draft after j
        own steps: at index i it has read the token at i+1+j and predicts the one at i+2+j.

        Steps after the first see the given tokens, not the draft's own.  For training that is the
        "training-time test"; for measuring acceptance it loses nothing, because step j only counts when
        all earlier proposals were right.  As in a server, a step attends to the features of committed
        positions (<= i) and to the earlier steps of its own chain.
        """
        length = features.shape[1]
        hidden = self.fuse(features)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        result = []
        for step in range(depth):
            positions = torch.arange(step, step + length, device=hidden.device)
            q, k, v = self.project(embeddings[:, step : step + length], hidden, positions)
            keys.append(k)
            values.append(v)
            output = self.advance(hidden, attend_chain(q, causal_scores(q, keys[0]), keys, values))
            result.append(self.logits(output))
            hidden = self.fed_back(output)
        return result

    def save(self, directory: Path) -> None:
        """Write ``config.json`` and ``model.safetensors`` as SGLang reads them."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.config.raw, indent=1) + "\n")
        tensors = {name: tensor.detach().contiguous() for name, tensor in self.state_dict().items()}
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})

    @classmethod
    def load(cls, directory: Path) -> "Eagle3Head":
        """Read a checkpoint in float32.

        Raises Eagle3Error when tensors are missing, unknown or of another shape than the config says:
        SGLang ignores the first two silently, and the accept length then falls to 1.
        """
        head = cls(Eagle3Config.from_dict(_read_config(directory)))
        tensors = {
            _own_name(name): tensor
            for name, tensor in _read_tensors(directory).items()
            if not name.endswith(("t2d", "embed_tokens.weight"))  # not used by the server either
        }
        if "d2t" in tensors:
            head.d2t = torch.zeros(head.config.draft_vocab_size, dtype=torch.int64)
        try:
            head.load_state_dict(tensors)
        except RuntimeError as error:
            raise Eagle3Error(f"{directory}: {error}") from error
        return head


def _read_config(directory: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((directory / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise Eagle3Error(f"{directory}: its config.json cannot be read: {error}") from None
    return config


def _read_tensors(directory: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint; of a pickled one only tensors are read, nothing is executed."""
    tensors: dict[str, Tensor] = {}
    try:
        for path in sorted(directory.glob("*.safetensors")):
            tensors |= load_file(path)
        if not tensors:
            for path in sorted(directory.glob("pytorch_model*.bin")):
                tensors |= torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, UnpicklingError, SafetensorError) as error:
        raise Eagle3Error(f"{directory}: its weights cannot be read: {error}") from None
    if not tensors:
        raise Eagle3Error(f"{directory}: holds no weights (*.safetensors or pytorch_model.bin)")
    return tensors


def _own_name(name: str) -> str:
    """The name here of a checkpoint's tensor, which may have one of the other names that SGLang knows."""
    name = name.removeprefix("model.").replace("layers.0.", "midlayer.")
    for number, place in enumerate(("low", "mid", "high")):
        name = name.replace(f"aux_norm_{place}", f"fc_norm.{number}")
    return name


def attend_chain(q: Tensor, committed: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Attention over committed positions and the own chain, [B, H, T, D].

    ``committed`` [B, H, T, C] are the masked scores against ``keys[0]`` [B, H, C, D]; later keys and values,
    [B, H, T, D], hold one earlier step each of every query's own chain.
    """
    length = committed.shape[-1]
    scores = [committed, *((q * key).sum(-1, keepdim=True) for key in keys[1:])]
    weights = torch.cat(scores, dim=-1).softmax(-1)
    result = weights[..., :length] @ values[0]
    for step, value in enumerate(values[1:]):
        result = result + weights[..., length + step, None] * value
    return result
