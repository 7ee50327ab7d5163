"""A Llama for training on a CPU whose state dict is a Hugging Face checkpoint.

Shapes: B sequences, T positions, h hidden size.
"""

import copy
import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sweeper.drafts.layers import Attention, LayerShape, Mlp, RMSNorm, Rotary, causal_scores


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a model."""

    layer: LayerShape
    vocab_size: int
    num_hidden_layers: int
    max_position_embeddings: int

    def as_dict(self) -> dict[str, Any]:
        """The ``config.json`` of this model."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **asdict(self.layer),
            "vocab_size": self.vocab_size,
            "num_hidden_layers": self.num_hidden_layers,
            "max_position_embeddings": self.max_position_embeddings,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
            "bos_token_id": 0,
            "eos_token_id": 0,
        }

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> "LlamaConfig":
        """Inverse of ``as_dict``."""
        sizes = ("vocab_size", "num_hidden_layers", "max_position_embeddings")
        return cls(LayerShape.from_config(config), **{name: config[name] for name in sizes})


class LlamaLayer(nn.Module):
    """Attention and feed-forward block, each behind a norm and added to the residual stream."""

    def __init__(self, shape: LayerShape) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.self_attn = Attention(shape, shape.hidden_size)
        self.post_attention_layernorm = RMSNorm(shape.hidden_size, shape.rms_norm_eps)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor, rotary: Rotary) -> Tensor:
        q, k, v = self.self_attn.project(self.input_layernorm(x), rotary)
        x = x + self.self_attn.merge(causal_scores(q, k).softmax(-1) @ v)
        result: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return result


@dataclass(frozen=True)
class LlamaOutput:
    """``logits`` [B, T, vocabulary]; ``features`` [B, T, 3 h], the input of an EAGLE-3 head."""

    logits: Tensor
    features: Tensor


class Llama(nn.Module):
    """The model; ``self.model`` only gives the parameters their names in a checkpoint."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        size = config.layer.hidden_size
        self.config = config
        self.captured: tuple[int, ...] | None = None
        """Layers whose input are the features; None: what SGLang captures by default."""
        layers = nn.ModuleList(LlamaLayer(config.layer) for _ in range(config.num_hidden_layers))
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(config.vocab_size, size),
                "layers": layers,
                "norm": RMSNorm(size, config.layer.rms_norm_eps),
            }
        )
        self.lm_head = nn.Linear(size, config.vocab_size, bias=False)
        initialise(self, config.num_hidden_layers)

    @property
    def layers(self) -> nn.ModuleList:
        layers = self.model["layers"]
        assert isinstance(layers, nn.ModuleList)
        return layers

    def embed(self, ids: Tensor) -> Tensor:
        """Token embeddings [..., h]."""
        embedded: Tensor = self.model["embed_tokens"](ids)
        return embedded

    def forward(self, ids: Tensor) -> LlamaOutput:
        """``ids`` [B, T]."""
        rotary = Rotary.at(torch.arange(ids.shape[1]), self.config.layer)
        captured = self.captured or captured_layers(len(self.layers))
        x, features = self.embed(ids), []
        for index, layer in enumerate(self.layers):
            if index in captured:
                features.append(x)
            x = layer(x, rotary)
        return LlamaOutput(self.lm_head(self.model["norm"](x)), torch.cat(features, dim=-1))

    def grow(self) -> None:
        """Double the depth without changing the function.

        Behind each layer comes a copy whose output projections are zero.  Training a shallow model first
        takes more steps in the same time.
        """
        grown = []
        for layer in self.layers:
            extra = copy.deepcopy(layer)
            assert isinstance(extra, LlamaLayer)
            nn.init.zeros_(extra.self_attn.o_proj.weight)
            nn.init.zeros_(extra.mlp.down_proj.weight)
            grown += [layer, extra]
        self.model["layers"] = nn.ModuleList(grown)
        self.config = replace(self.config, num_hidden_layers=len(grown))

    def shallow(self, layers: int) -> "Llama":
        """A new model with copies of this one's embedding, head and first ``layers`` layers."""
        result = Llama(replace(self.config, num_hidden_layers=layers))
        own = self.state_dict()
        result.load_state_dict({name: own[name] for name in result.state_dict()})
        return result

    def save(self, directory: Path) -> None:
        """Write ``config.json`` and ``model.safetensors``."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "config.json").write_text(json.dumps(self.config.as_dict(), indent=1) + "\n")
        tensors = {name: tensor.detach().contiguous() for name, tensor in self.state_dict().items()}
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})

    @classmethod
    def load(cls, directory: Path) -> "Llama":
        """Read what ``save`` wrote."""
        model = cls(LlamaConfig.from_dict(json.loads((directory / "config.json").read_text())))
        model.load_state_dict(load_file(directory / "model.safetensors"))
        return model


def captured_layers(depth: int) -> tuple[int, ...]:
    """Layers whose *input* SGLang hands to an EAGLE-3 draft when its config names none."""
    return (2, depth // 2, depth - 3) if depth > 4 else (0, depth // 2, depth - 1)


def initialise(module: nn.Module, depth: int) -> None:
    """Random matrices: half of 1/sqrt(inputs), output projections also divided by sqrt(2 ``depth``)."""
    for name, weight in module.named_parameters():
        if weight.ndim != 2:
            continue
        std = 0.5 / math.sqrt(weight.shape[1])
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            std /= math.sqrt(2 * depth)
        elif name.endswith("embed_tokens.weight"):
            std = 0.5
        elif name.endswith("lm_head.weight"):
            std = 0.02
        nn.init.normal_(weight, 0.0, std)
