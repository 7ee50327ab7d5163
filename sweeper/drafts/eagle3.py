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
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sweeper.drafts.layers import Attention, LayerShape, Mlp, RMSNorm, Rotary, causal_scores


class Eagle3Error(ValueError):
    """A checkpoint that this head cannot represent."""


@dataclass(frozen=True)
class Eagle3Config:
    """What the head needs from ``config.json``; ``raw`` keeps the whole file."""

    layer: LayerShape
    draft_vocab_size: int
    target_hidden_size: int
    num_aux_hidden_states: int
    raw: dict[str, Any]

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> "Eagle3Config":
        """Read a parsed ``config.json``; raises Eagle3Error where the head could not follow it."""
        eagle = config.get("eagle_config") or {}
        ids = eagle.get("eagle_aux_hidden_state_layer_ids") or [0, 0, 0]
        if config.get("num_hidden_layers", 1) != 1:
            raise Eagle3Error(f"num_hidden_layers is {config['num_hidden_layers']}, only 1 is supported")
        extra = {name for name in ("use_aux_norm", "norm_output", "fc_norm") if config.get(name)}
        if eagle.get("norm_before_fc"):
            extra.add("norm_before_fc")
        if extra:
            raise Eagle3Error(f"not supported: {', '.join(sorted(extra))}")
        try:
            return cls(
                layer=LayerShape.from_config(config),
                draft_vocab_size=config.get("draft_vocab_size") or config["vocab_size"],
                target_hidden_size=config.get("target_hidden_size") or config["hidden_size"],
                num_aux_hidden_states=config.get("num_aux_hidden_states") or len(ids),
                raw=config,
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
        size = config.layer.hidden_size
        self.config = config
        self.fc = nn.Linear(config.num_aux_hidden_states * config.target_hidden_size, size, bias=False)
        self.midlayer = Eagle3Layer(config.layer)
        self.norm = RMSNorm(size, config.layer.rms_norm_eps)
        self.lm_head = nn.Linear(size, config.draft_vocab_size, bias=False)
        self.register_buffer("d2t", None)

    def target_ids(self, draft_ids: Tensor) -> Tensor:
        """Translate ids of the draft vocabulary into the target's (``d2t`` holds the difference)."""
        return draft_ids if self.d2t is None else draft_ids + self.d2t[draft_ids]

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
        length, layer = features.shape[1], self.midlayer
        hidden = self.fc(features) if features.shape[-1] != self.norm.weight.shape[0] else features
        keys: list[Tensor] = []
        values: list[Tensor] = []
        result = []
        for step in range(depth):
            positions = torch.arange(step, step + length, device=hidden.device)
            embedding = layer.input_layernorm(embeddings[:, step : step + length])
            pair = torch.cat((embedding, layer.hidden_norm(hidden)), dim=-1)
            q, k, v = layer.self_attn.project(pair, Rotary.at(positions, self.config.layer))
            keys.append(k)
            values.append(v)
            attended = layer.self_attn.merge(_attend_chain(q, keys, values))
            hidden = hidden + attended
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
            result.append(self.lm_head(self.norm(hidden)))
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
        head = cls(Eagle3Config.from_dict(json.loads((directory / "config.json").read_text())))
        tensors = {
            name.removeprefix("model.").replace("layers.0.", "midlayer."): tensor
            for name, tensor in load_file(directory / "model.safetensors").items()
            if not name.endswith(("t2d", "embed_tokens.weight"))  # not used by the server either
        }
        if "d2t" in tensors:
            head.d2t = torch.zeros(head.config.draft_vocab_size, dtype=torch.int64)
        try:
            head.load_state_dict(tensors)
        except RuntimeError as error:
            raise Eagle3Error(f"{directory}: {error}") from error
        return head


def _attend_chain(q: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Attention of the last step: causal over the first step's keys, own chain for the later ones."""
    length = q.shape[2]
    scores = [causal_scores(q, keys[0])]
    scores += [(q * key).sum(-1, keepdim=True) for key in keys[1:]]
    weights = torch.cat(scores, dim=-1).softmax(-1)
    result = weights[..., :length] @ values[0]
    for step, value in enumerate(values[1:]):
        result = result + weights[..., length + step, None] * value
    return result
