"""The parts of a Llama layer, named as in Hugging Face checkpoints so that a state dict is a checkpoint.

Shapes: B sequences, T positions, H query heads, K key/value heads, D values per head, h hidden size.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class RopeScaling:
    """Slower rotation for longer texts, under the names of ``config.json``: the kinds "linear" and "llama3".

    "linear" divides every frequency by ``factor``. "llama3" leaves those alone that turn at least ``high_freq_factor``
    times within the original context, divides those by ``factor`` that turn less than ``low_freq_factor`` times, and
    goes over from the one to the other in between (Llama 3.1's reference code).
    """

    rope_type: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192

    @classmethod
    def from_config(cls, section: dict[str, Any]) -> "RopeScaling | None":
        """Of ``rope_scaling`` or ``rope_parameters``; None for the plain embedding, ValueError for other kinds."""
        kind = section.get("rope_type", section.get("type", "default"))
        if kind == "default":
            return None
        if kind not in ("linear", "llama3"):
            raise ValueError(
                f"rotary embedding type {kind!r} is not supported, only the plain one, linear and llama3 are"
            )
        names = ("low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        given = {name: section[name] for name in names if kind == "llama3"}
        return cls(kind, float(section["factor"]), **given)

    def __call__(self, frequency: Tensor) -> Tensor:
        """Scaled angles per position, from the plain ones."""
        if self.rope_type == "linear":
            return frequency / self.factor
        turns = self.original_max_position_embeddings * frequency / (2 * math.pi)
        kept = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        kept = kept.clamp(0, 1)
        return kept * frequency + (1 - kept) * frequency / self.factor


@dataclass(frozen=True)
class LayerShape:
    """Sizes of one layer, under the names of ``config.json``."""

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "LayerShape":
        """Read the sizes from a parsed ``config.json``.

        Raises KeyError for a missing size and ValueError for a rotary embedding of another kind than those of
        RopeScaling, which would otherwise compute slightly wrong positions without a sign.
        """
        heads = config["num_attention_heads"]
        rope = config.get("rope_parameters") or {}
        scalings = [RopeScaling.from_config(section) for section in (rope, config.get("rope_scaling") or {})]
        return cls(
            hidden_size=config["hidden_size"],
            intermediate_size=config["intermediate_size"],
            num_attention_heads=heads,
            num_key_value_heads=config.get("num_key_value_heads", heads),
            head_dim=config.get("head_dim") or config["hidden_size"] // heads,
            rms_norm_eps=config.get("rms_norm_eps", 1e-6),  # the default of Hugging Face's Llama
            rope_theta=rope.get("rope_theta", config.get("rope_theta", 10000.0)),
            rope_scaling=next((scaling for scaling in scalings if scaling), None),
        )


class RMSNorm(nn.Module):
    """Divide by the root mean square of the last dimension and scale."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, x.shape[-1:], self.weight.to(x.dtype), self.eps)


@dataclass(frozen=True)
class Rotary:
    """Cosines and sines [T, D] that turn queries and keys by their position."""

    cos: Tensor
    sin: Tensor

    @classmethod
    def at(cls, positions: Tensor, shape: LayerShape) -> "Rotary":
        """Angles of ``positions`` [T]."""
        exponent = torch.arange(0, shape.head_dim, 2, device=positions.device).float() / shape.head_dim
        frequency = shape.rope_theta**-exponent
        if shape.rope_scaling is not None:
            frequency = shape.rope_scaling(frequency)
        angle = torch.outer(positions.float(), frequency).repeat(1, 2)
        return cls(angle.cos(), angle.sin())

    def __call__(self, x: Tensor) -> Tensor:
        """Turn ``x`` [B, H, T, D]."""
        first, second = x.chunk(2, dim=-1)
        turned = x * self.cos.to(x.dtype)
        return turned + torch.cat((-second, first), dim=-1) * self.sin.to(x.dtype)


class Attention(nn.Module):
    """Projections of an attention block; ``input_size`` is 2 h in an EAGLE-3 layer and h elsewhere."""

    def __init__(self, shape: LayerShape, input_size: int) -> None:
        super().__init__()
        self.head_dim = shape.head_dim
        self.groups = shape.num_attention_heads // shape.num_key_value_heads
        q_size = shape.num_attention_heads * shape.head_dim
        kv_size = shape.num_key_value_heads * shape.head_dim
        self.q_proj = nn.Linear(input_size, q_size, bias=False)
        self.k_proj = nn.Linear(input_size, kv_size, bias=False)
        self.v_proj = nn.Linear(input_size, kv_size, bias=False)
        self.o_proj = nn.Linear(q_size, shape.hidden_size, bias=False)

    def project(self, x: Tensor, rotary: Rotary) -> tuple[Tensor, Tensor, Tensor]:
        """Scaled queries, keys and values of ``x`` [B, T, input_size], all [B, H, T, D]."""
        q, k, v = (
            projection(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotary(q) * self.head_dim**-0.5, rotary(k)
        if self.groups > 1:
            k, v = k.repeat_interleave(self.groups, dim=1), v.repeat_interleave(self.groups, dim=1)
        return q, k, v

    def merge(self, heads: Tensor) -> Tensor:
        """[B, H, T, D] -> [B, T, h]."""
        merged: Tensor = self.o_proj(heads.transpose(1, 2).flatten(2))
        return merged


def causal_scores(q: Tensor, k: Tensor) -> Tensor:
    """Scores [B, H, T, T] of scaled queries against keys, with later keys hidden.

    Plain products, because torch's fused attention on a CPU is 2-4 times slower in training.
    """
    length = q.shape[2]
    hidden = torch.full((length, length), -1e4, device=q.device, dtype=q.dtype).triu(1)
    return q @ k.mT + hidden


class Mlp(nn.Module):
    """The gated feed-forward block."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.up_proj = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.down_proj = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return result
