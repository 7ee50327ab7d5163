"""The tensors that SGLang expects of a draft, and how it finds them in a checkpoint.

SGLang's loaders drop a name they do not know and never notice a parameter that no tensor filled: it keeps random
numbers (ones, in a norm). So the full list stands here. Source: the model classes of SGLang 0.5.23 and their
``load_weights``; h hidden size, t the target's, i intermediate size, q query and kv key-value width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sweeper.drafts.preflight.config_json import (
    Config,
    eagle_config,
    head_dim,
    integers,
    kv_heads,
    layer_count,
    number,
)

Shape = tuple[int, ...]
Resolve = Callable[[str], str | None]

HARMLESS = re.compile(r"(^|\.)(d2t|t2d)$|rotary_emb\.|(^|\.)mask_embedding$|_scale(_inv)?$|input_scale$")
"""Names that no parameter has to take."""


@dataclass(frozen=True)
class Layout:
    """``required`` and ``optional`` parameters with their shapes, under names that ``resolve`` gives a tensor.

    ``resolve`` returns None for a name that SGLang drops.
    """

    required: Mapping[str, Shape]
    optional: Mapping[str, Shape]
    resolve: Resolve

    def shape(self, parameter: str) -> Shape | None:
        return self.required.get(parameter) or self.optional.get(parameter)


def _layout(
    required: Mapping[str, Shape], optional: Mapping[str, Shape], renamed: Callable[[str], Iterable[str]]
) -> Layout:
    known = required.keys() | optional.keys()
    return Layout(required, optional, lambda name: next((n for n in renamed(name) if n in known), None))


def aux_count(config: Config) -> int:
    """Hidden states that an EAGLE3 draft is made for: its key, else as many as ids, else 3."""
    ids = integers(eagle_config(config).get("eagle_aux_hidden_state_layer_ids"))
    return number(config, "num_aux_hidden_states") or len(ids or (0, 0, 0))


def target_width(config: Config) -> int:
    """The hidden size of the target that an EAGLE3 draft is made for."""
    return number(config, "target_hidden_size") or number(config, "hidden_size")


def draft_vocabulary(config: Config) -> int:
    return number(config, "draft_vocab_size") or number(config, "vocab_size")


def _attention(config: Config, prefix: str, width: int) -> dict[str, Shape]:
    """Projections of a layer whose attention reads ``width`` numbers."""
    h, q = number(config, "hidden_size"), number(config, "num_attention_heads") * head_dim(config)
    kv = kv_heads(config) * head_dim(config)
    shapes = {"q_proj": (q, width), "k_proj": (kv, width), "v_proj": (kv, width), "o_proj": (h, q)}
    return {f"{prefix}.self_attn.{name}.weight": shape for name, shape in shapes.items()}


def _mlp(config: Config, prefix: str) -> dict[str, Shape]:
    h, i = number(config, "hidden_size"), number(config, "intermediate_size")
    shapes = {"gate_proj": (i, h), "up_proj": (i, h), "down_proj": (h, i)}
    return {f"{prefix}.mlp.{name}.weight": shape for name, shape in shapes.items()}


def _head(config: Config, required: dict[str, Shape], optional: dict[str, Shape]) -> None:
    """``fc``, norms and vocabulary of an EAGLE3 draft."""
    h, t, n = number(config, "hidden_size"), target_width(config), aux_count(config)
    required |= {"fc.weight": (h, n * t), "norm.weight": (h,)}
    if config.get("bias"):
        required["fc.bias"] = (h,)
    if config.get("fc_norm") or config.get("use_aux_norm"):
        required |= {f"fc_norm.{k}.weight": (t,) for k in range(n)}
    if not config.get("tie_word_embeddings"):
        head = required if config.get("draft_vocab_size") is not None else optional
        head["lm_head.weight"] = (draft_vocabulary(config), h)
    embedding = required if t != h else optional  # the target's is used where it fits
    embedding["embed_tokens.weight"] = (number(config, "vocab_size"), h)


def eagle3_layout(config: Config) -> Layout:
    """``LlamaForCausalLMEagle3``: layer 0 reads the embedding beside the fused hidden state, 2h wide."""
    h = number(config, "hidden_size")
    required: dict[str, Shape] = {}
    optional: dict[str, Shape] = {}
    _head(config, required, optional)
    if eagle_config(config).get("norm_before_fc", config.get("norm_before_fc")):
        required["input_norm.weight"] = (aux_count(config) * target_width(config),)
    for layer in range(layer_count(config, 1)):
        prefix = f"layers.{layer}"
        required |= _attention(config, prefix, 2 * h if layer == 0 else h) | _mlp(config, prefix)
        norms = {f"{prefix}.{name}.weight": (h,) for name in ("hidden_norm", "post_attention_layernorm")}
        required |= norms
        (required if layer == 0 else optional)[f"{prefix}.input_layernorm.weight"] = (h,)
        if config.get("attention_bias") or config.get("bias"):
            required[f"{prefix}.self_attn.o_proj.bias"] = (h,)

    def renamed(name: str) -> Iterable[str]:
        for old, new in _OLD_EAGLE3_NAMES.items():
            name = name.replace(old, new)
        # All but the head live under "model.", which a checkpoint may leave out.
        return (name,) if name.startswith("lm_head.") else _without("model.", name, but="lm_head.")

    return _layout(required, optional, renamed)


_OLD_EAGLE3_NAMES = {
    "midlayer": "layers.0",
    "aux_norm_low": "fc_norm.0",
    "aux_norm_mid": "fc_norm.1",
    "aux_norm_high": "fc_norm.2",
}


def _without(prefix: str, name: str, but: str = "\0") -> tuple[str, ...]:
    plain = name.removeprefix(prefix)
    return () if plain.startswith(but) else (plain,)


def eagle3_mla_layout(config: Config) -> Layout:
    """``Eagle3DeepseekV2ForCausalLM``: one layer with multi-latent attention; names take no ``model.``."""
    h, heads = number(config, "hidden_size"), number(config, "num_attention_heads")
    rope, nope = number(config, "qk_rope_head_dim"), number(config, "qk_nope_head_dim")
    v, q_rank, kv_rank = (number(config, key) for key in ("v_head_dim", "q_lora_rank", "kv_lora_rank"))
    required: dict[str, Shape] = {}
    optional: dict[str, Shape] = {}
    _head(config, required, optional)
    layer, attention = "layers.0", "layers.0.self_attn"
    required |= _mlp(config, layer)
    required |= {
        f"{attention}.q_a_proj.weight": (q_rank, 2 * h),
        f"{attention}.kv_a_proj_with_mqa.weight": (kv_rank + rope, 2 * h),
        f"{attention}.q_a_layernorm.weight": (q_rank,),
        f"{attention}.kv_a_layernorm.weight": (kv_rank,),
        f"{attention}.q_b_proj.weight": (heads * (nope + rope), q_rank),
        f"{attention}.kv_b_proj.weight": (heads * (nope + v), kv_rank),
        f"{attention}.o_proj.weight": (h, heads * v),
    }
    norms = ("hidden_norm", "input_layernorm", "post_attention_layernorm")
    required |= {f"{layer}.{name}.weight": (h,) for name in norms}
    return _layout(required, optional, lambda name: (re.sub(r"^midlayer\.", "layers.0.", name),))


def eagle_layout(config: Config) -> Layout:
    """``LlamaForCausalLMEagle``: ``fc`` over embedding and hidden state, then layers, the first without its first norm.

    Names take no ``model.``; embedding and head are the target's.
    """
    h = number(config, "hidden_size")
    required: dict[str, Shape] = {"fc.weight": (h, 2 * h)}
    optional: dict[str, Shape] = {"fc.bias": (h,), "embed_tokens.weight": (number(config, "vocab_size"), h)}
    for layer in range(layer_count(config, 1)):
        prefix = f"layers.{layer}"
        required |= _attention(config, prefix, h) | _mlp(config, prefix)
        required[f"{prefix}.post_attention_layernorm.weight"] = (h,)
        (required if layer else optional)[f"{prefix}.input_layernorm.weight"] = (h,)
    optional["lm_head.weight"] = (number(config, "vocab_size"), h)
    return _layout(required, optional, lambda name: (name,))


def dflash_layer_ids(config: Config) -> tuple[int, ...] | None:
    """The target's layers that a DFLASH draft reads, as outputs; None: SGLang spreads them evenly."""
    section = config.get("dflash_config")
    nested = section.get("target_layer_ids") if isinstance(section, dict) else None
    return integers(nested if nested is not None else config.get("target_layer_ids"))


def dflash_layout(config: Config) -> Layout:
    """``DFlashDraftModel``: layers with query and key norms, ``fc`` over the features; no embedding, no head."""
    h, d, layers = number(config, "hidden_size"), head_dim(config), layer_count(config)
    features = len(dflash_layer_ids(config) or range(layers))
    required: dict[str, Shape] = {
        "fc.weight": (h, features * h),
        "norm.weight": (h,),
        "hidden_norm.weight": (h,),
    }
    for layer in range(layers):
        prefix = f"layers.{layer}"
        required |= _attention(config, prefix, h) | _mlp(config, prefix)
        required |= {f"{prefix}.self_attn.{name}_norm.weight": (d,) for name in "qk"}
        norms = ("input_layernorm", "post_attention_layernorm")
        required |= {f"{prefix}.{name}.weight": (h,) for name in norms}
    return _layout(required, {}, lambda name: _without("model.", name))


DENSE = frozenset({"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM"})


def dense_layout(config: Config, architecture: str) -> Layout:
    """A whole model of one of the ``DENSE`` classes, which name and shape their tensors alike."""
    h, d, vocabulary = number(config, "hidden_size"), head_dim(config), number(config, "vocab_size")
    required: dict[str, Shape] = {"model.embed_tokens.weight": (vocabulary, h), "model.norm.weight": (h,)}
    if not config.get("tie_word_embeddings"):
        required["lm_head.weight"] = (vocabulary, h)
    for layer in range(layer_count(config)):
        prefix = f"model.layers.{layer}"
        required |= _attention(config, prefix, h) | _mlp(config, prefix)
        norms = ("input_layernorm", "post_attention_layernorm")
        required |= {f"{prefix}.{name}.weight": (h,) for name in norms}
        if architecture == "Qwen3ForCausalLM":
            required |= {f"{prefix}.self_attn.{name}_norm.weight": (d,) for name in "qk"}
    return _layout(required, {}, lambda name: (name,))
