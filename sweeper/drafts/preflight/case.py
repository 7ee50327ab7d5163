"""What a rule of preflight looks at: one draft, its target, the algorithm and the server's settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from sweeper.drafts.preflight.checkpoint import Checkpoint
from sweeper.drafts.preflight.config_json import (
    context_of,
    eagle_config,
    integers,
    layer_count,
    number,
    served_dtype,
)
from sweeper.drafts.preflight.findings import Level
from sweeper.drafts.preflight.formats import EAGLE3_KINDS, Format, format_of
from sweeper.drafts.preflight.layouts import (
    DENSE,
    Layout,
    dense_layout,
    dflash_layout,
    eagle3_layout,
    eagle3_mla_layout,
    eagle_layout,
)
from sweeper.drafts.preflight.wiring import Wiring, can_capture, wiring
from sweeper.releases import NEWEST_KNOWN, release

AUX_IDS = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True)
class Serving:
    """What of the server's settings a draft must fit. None: not given.

    ``longer_context``: SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN is set. ``longest_request``: tokens of the workload's
    longest request, input and output, where that is known.
    """

    version: str = NEWEST_KNOWN
    dtype: str = "auto"
    quantization: str | None = None
    draft_quantization: str | None = None
    context_length: int | None = None
    longer_context: bool = False
    longest_request: int | None = None
    graphs: bool = True

    def since(self, version: str) -> bool:
        return release(self.version) >= release(version)


@dataclass(frozen=True)
class Case:
    """One draft under one algorithm. ``target`` is None where its files are not here."""

    algorithm: str
    draft: Checkpoint
    target: Checkpoint | None
    serving: Serving

    @cached_property
    def format(self) -> Format:
        return format_of(self.draft, self.algorithm, self.serving.version)

    @property
    def inside_target(self) -> bool:
        """Whether the draft is the target's own MTP heads."""
        return self.target is not None and self.draft.path == self.target.path

    @property
    def quantized(self) -> bool:
        """Whether the draft's own files are quantized, so that its tensors have other names and shapes."""
        return bool(self.draft.text.get("quantization_config"))

    @cached_property
    def layout(self) -> Layout | None:
        """The tensors it should have; None where nobody has written down what its class expects."""
        config, name = self.draft.text, self.draft.architecture
        if self.format is Format.EAGLE3:
            return eagle3_layout(config)
        if self.format is Format.EAGLE3_MLA:
            return eagle3_mla_layout(config) if number(config, "q_lora_rank") else None
        if name == "LlamaForCausalLMEagle":
            return eagle_layout(config)
        if name == "DFlashDraftModel":
            return dflash_layout(config)
        return dense_layout(config, name) if self.format is Format.MODEL and name in DENSE else None

    @property
    def ids(self) -> tuple[int, ...] | None:
        """The aux layer ids where SGLang looks for them; None: it takes its default."""
        return integers(eagle_config(self.draft.text).get(AUX_IDS))

    @cached_property
    def wiring(self) -> Wiring | None:
        """What an EAGLE3 draft is fed; None for other kinds, or where the target is not known well enough."""
        if self.algorithm != "EAGLE3" or self.format not in EAGLE3_KINDS or self.target is None:
            return None
        layers = layer_count(self.target.text)
        if not layers or not can_capture(self.target.architecture):
            return None
        return wiring(self.target.architecture, self.ids, layers, self.serving.version)

    @property
    def target_context(self) -> int | None:
        """Tokens that the target is served with."""
        if self.serving.context_length:
            return self.serving.context_length
        known = self.target is not None and "hidden_size" in self.target.text
        return context_of(self.target.text) if self.target is not None and known else None

    def dtypes(self) -> tuple[str, str] | None:
        """The types that draft and target compute in; None where the target's is not known."""
        if self.target is None or not self.target.architecture:
            return None
        if self.serving.dtype != "auto":
            return self.serving.dtype, self.serving.dtype
        return served_dtype(self.draft.text), served_dtype(self.target.text)


@dataclass(frozen=True)
class Problem:
    """What a rule found: where it is, what it is, what to do. ``level`` where it differs from the rule's."""

    where: str
    what: str
    do: str
    level: Level | None = None


@dataclass(frozen=True)
class Rule:
    """One thing that must hold. ``demands`` says it in a sentence for docs/drafts.md.

    ``formats``: the kinds of draft it is about, empty for all. ``levels``: what its findings can mean, the usual
    one first.
    """

    id: str
    levels: tuple[Level, ...]
    demands: str
    check: Callable[[Case], Iterable[Problem]]
    formats: frozenset[Format] = frozenset()

    def applies(self, case: Case) -> bool:
        return not self.formats or case.format in self.formats
