"""A target through transformers: its greedy outputs, and its hidden states where SGLang captures them.

Shapes: B prompts, L tokens of a text, h hidden size, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sweeper.drafts.wiring import Tap
from sweeper.errors import SweeperError

Progress = Callable[[int], None]
"""Called with the number of prompts that were just finished."""

_PROMPTS_AT_ONCE = 16


class TargetError(SweeperError):
    """A target that transformers cannot load, or whose layers cannot be found."""


@dataclass(frozen=True)
class Reading:
    """One pass over a text. ``states`` [L, h] by tap, in float32; ``choices`` [L]: the token chosen after each."""

    states: Mapping[Tap, Tensor]
    choices: Tensor


class Target:
    """A causal language model, on one device or spread over several by its own device map."""

    def __init__(self, model: Any, tokenizer: Any, end_tokens: frozenset[int]) -> None:
        self.model, self.tokenizer, self.end_tokens = model, tokenizer, end_tokens
        self.blocks = _blocks(model)
        self.embedding: nn.Module = model.get_input_embeddings()
        self.head: nn.Module = model.get_output_embeddings()

    @classmethod
    def load(cls, checkpoint: str, device: str = "cpu") -> Target:
        """Load a checkpoint or hub id; in its own precision on a GPU, in float32 on a CPU.

        Raises:
            TargetError: transformers is missing, does not know the architecture, or finds no weights.
        """
        try:
            import transformers
        except ImportError:
            raise TargetError("reading a target needs transformers: pip install transformers") from None
        from sweeper.server.checkpoint import end_tokens

        kind = torch.float32 if device == "cpu" else "auto"
        transformers.utils.logging.disable_progress_bar()
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
            model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=kind)
        except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
            raise TargetError(f"target {checkpoint}: transformers cannot load it: {error}") from None
        placed: Any = model
        placed.generation_config.eos_token_id = None  # `greedy` says where an output ends
        return cls(placed.to(device).eval().requires_grad_(False), tokenizer, end_tokens(checkpoint))

    @property
    def layers(self) -> int:
        return len(self.blocks)

    @property
    def architecture(self) -> str:
        return str((getattr(self.model.config, "architectures", None) or [type(self.model).__name__])[0])

    @property
    def width(self) -> int:
        """h of the hidden states."""
        return int(self.embedding.get_parameter("weight").shape[-1])

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device  # type: ignore[no-any-return]

    def encode(self, text: str) -> list[int]:
        """Token ids as the server makes them of a text."""
        return [int(i) for i in self.tokenizer.encode(text)]

    def embed(self, ids: Tensor) -> Tensor:
        """Embedding's output [..., h] of ids [...], in float32."""
        embedded: Tensor = self.embedding(ids.to(self.device)).float()
        return embedded

    @torch.no_grad()
    def greedy(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, progress: Progress | None = None
    ) -> list[list[int]]:
        """The target's own continuation of each prompt, up to and including one of ``end_tokens``."""
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        outputs: dict[int, list[int]] = {}
        for begin in range(0, len(order), _PROMPTS_AT_ONCE):
            batch = order[begin : begin + _PROMPTS_AT_ONCE]
            for index, output in zip(
                batch, self._continue([prompts[i] for i in batch], max_new_tokens), strict=True
            ):
                outputs[index] = output
            if progress:
                progress(len(batch))
        return [outputs[i] for i in range(len(prompts))]

    def _continue(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> Iterator[list[int]]:
        longest = max(map(len, prompts))
        ids = torch.zeros(len(prompts), longest, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):  # padded in front, so that all outputs begin at the same place
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        ends = sorted(self.end_tokens)
        generated = self.model.generate(
            ids.to(self.device),
            attention_mask=mask.to(self.device),
            max_new_tokens=max_new_tokens,
            do_sample=False,
            num_beams=1,
            eos_token_id=ends or None,
            pad_token_id=ends[0] if ends else 0,
            # What a generation_config.json may ask for, and a server would not do for a greedy request.
            temperature=None,
            top_p=None,
            top_k=None,
            repetition_penalty=1.0,
        )
        for row in generated[:, longest:].tolist():
            end = next((i for i, token in enumerate(row) if token in self.end_tokens), len(row))
            yield row[: end + 1]

    @torch.no_grad()
    def read(self, ids: Tensor, taps: Iterable[Tap]) -> Reading:
        """One pass over a text ``ids`` [L] with every tap's hidden states."""
        with self._tapped(set(taps)) as states:
            logits = self.model(ids[None].to(self.device), use_cache=False).logits[0]
        return Reading({tap: state[0].float() for tap, state in states.items()}, logits.argmax(-1))

    def has(self, tap: Tap) -> bool:
        """Whether the target has such a place: not every architecture has an input norm by the usual name."""
        if tap.index >= self.layers:
            return tap.index == self.layers
        return not tap.normed or hasattr(self.blocks[tap.index], "input_layernorm")

    @contextmanager
    def _tapped(self, taps: set[Tap]) -> Iterator[dict[Tap, Tensor]]:
        """While open, a forward pass fills the dictionary it gives."""
        states: dict[Tap, Tensor] = {}
        hooks = [self._hook(tap, states) for tap in taps]
        try:
            yield states
        finally:
            for hook in hooks:
                hook.remove()

    def _hook(self, tap: Tap, states: dict[Tap, Tensor]) -> Any:
        def enter(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            states[tap] = args[0] if args else kwargs["hidden_states"]

        def leave(_: nn.Module, __: Any, output: Any) -> None:
            states[tap] = output[0] if isinstance(output, tuple) else output

        if tap.index == self.layers:
            if tap.normed:
                return self.head.register_forward_pre_hook(enter, with_kwargs=True)
            return self.blocks[-1].register_forward_hook(leave)
        block = self.blocks[tap.index]
        if tap.normed:
            return block.get_submodule("input_layernorm").register_forward_hook(leave)
        return block.register_forward_pre_hook(enter, with_kwargs=True)


def _blocks(model: Any) -> nn.ModuleList:
    """The layers of a model's decoder, in their order."""
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    wanted = getattr(config, "num_hidden_layers", None)
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == wanted:
            return module
    raise TargetError(f"target {type(model).__name__}: no list of {wanted} layers is found in it")


def target_config(checkpoint: str) -> dict[str, Any]:
    """The text part of a local target's config.json.

    Raises:
        TargetError: there is none.
    """
    path = Path(checkpoint) / "config.json"
    try:
        config: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TargetError(f"{path}: cannot be read: {error}") from None
    return {**config, **config.get("text_config", {})}
