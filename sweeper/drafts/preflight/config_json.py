"""What a config.json means where it says nothing, or says it in one of several ways. Pure functions.

Defaults are those of transformers' ``LlamaConfig`` and of SGLang 0.5.23's ``get_context_length`` and
``_get_and_verify_dtype``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Config = Mapping[str, Any]

LLAMA_DEFAULTS = {
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 32000,
}
DEFAULT_THETA = 10000.0
DEFAULT_CONTEXT = 2048
MOST_LAYERS = 1024
_CONTEXT_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)
_NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
_ROPE_NOISE = {"rope_type", "type", "rope_theta", "mrope_section", "mrope_interleaved", "attention_factor"}


def text_config(config: Config) -> Config:
    """The part that describes the language model; that of a multimodal model is nested."""
    for key in _NESTED:
        section = config.get(key)
        if isinstance(section, dict) and "hidden_size" in section:
            return {**config, **section}
    return config


def number(config: Config, key: str) -> int:
    """A size, with Llama's default where it is missing; 0 where there is none or it is no number."""
    value = config.get(key)
    if value is None:
        value = LLAMA_DEFAULTS.get(key, 0)
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


def _real(value: Any) -> float:
    """A number; 0 for what is none."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


@dataclass(frozen=True)
class Rope:
    """Rotary position embedding: base and scaling; ``scaling`` is empty for the plain one."""

    theta: float = DEFAULT_THETA
    kind: str = "default"
    scaling: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        if self.kind == "default":
            return f"theta {self.theta:g}, not scaled"
        inside = ", ".join(f"{key} {value}" for key, value in self.scaling.items())
        return f"theta {self.theta:g}, {self.kind} ({inside})"


def rope_of(config: Config) -> Rope:
    """From ``rope_parameters`` (transformers 5) or ``rope_theta`` and ``rope_scaling``."""
    section = config.get("rope_parameters") or config.get("rope_scaling") or {}
    section = section if isinstance(section, dict) else {}
    theta = _real(section.get("rope_theta")) or _real(config.get("rope_theta")) or DEFAULT_THETA
    kind = str(section.get("rope_type") or section.get("type") or "default")
    if kind in ("default", "mrope"):
        return Rope(theta)
    scaling = {k: v for k, v in sorted(section.items()) if k not in _ROPE_NOISE and v is not None}
    return Rope(theta, kind, scaling)


def context_of(config: Config) -> int:
    """Tokens that SGLang derives as a model's context length."""
    section = config.get("rope_scaling") or config.get("rope_parameters") or {}
    section = section if isinstance(section, dict) else {}
    kind = section.get("rope_type")
    fixed = "original_max_position_embeddings" in section or kind == "llama3"
    factor = 1.0 if fixed else _real(section.get("factor")) or 1.0
    for key in _CONTEXT_KEYS:
        if isinstance(config.get(key), int):
            return int(factor * config[key])
    return DEFAULT_CONTEXT


def served_dtype(config: Config) -> str:
    """What ``--dtype auto`` makes of a checkpoint: its own type, but half precision for float32 or none."""
    own = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    if own not in ("float32", "float"):
        return "float16" if own == "half" else own
    return "bfloat16" if str(config.get("model_type", "")).startswith("gemma") else "float16"


def eagle_config(config: Config) -> Config:
    """The section that EAGLE3 drafts keep their own keys in; empty where there is none."""
    section = config.get("eagle_config")
    return section if isinstance(section, dict) else {}


def integers(value: Any) -> tuple[int, ...] | None:
    """A list of integers; None for anything else, an empty list included."""
    if not isinstance(value, list) or not value or not all(type(v) is int for v in value):
        return None
    return tuple(value)


def layer_count(config: Config, default: int = 0) -> int:
    """``num_hidden_layers``, within reason: nobody has made a model of more than MOST_LAYERS."""
    given = config.get("num_hidden_layers")
    return max(0, min(given if type(given) is int else default, MOST_LAYERS))


def head_dim(config: Config) -> int:
    heads = number(config, "num_attention_heads")
    return number(config, "head_dim") or (number(config, "hidden_size") // heads if heads else 0)


def kv_heads(config: Config) -> int:
    return number(config, "num_key_value_heads") or number(config, "num_attention_heads")


def ids_of(config: Config, key: str) -> frozenset[int]:
    """Token ids of a key that holds one or several."""
    value = config.get(key)
    values = value if isinstance(value, list) else [value]
    return frozenset(v for v in values if isinstance(v, int) and not isinstance(v, bool))
