"""What SGLang's rules look at besides a config."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sweeper.releases import NEWEST_KNOWN, release


@dataclass(frozen=True)
class Context:
    """What SGLang's rules look at besides the config. None means unknown: rules that need it do not apply.

    The backends are those the server will use, by SGLang's names; ``page_size`` None is the backend's own.
    """

    version: str = NEWEST_KNOWN
    device: str = "cuda"
    attention_backend: str | None = None
    prefill_attention_backend: str | None = None
    decode_attention_backend: str | None = None
    draft_attention_backend: str | None = None
    page_size: int | None = None
    dp_attention: bool = False
    pipeline_parallel: int = 1
    tensor_parallel: int = 1
    dp_lm_head: bool = False
    pp_speculates: bool = False
    """Whether SGLANG_ENABLE_PP_SPEC=1 is set."""
    lora: bool = False
    spec_v2: bool = False
    """Whether SGLANG_ENABLE_SPEC_V2=1 (or 0.5.4's --enable-beta-spec) asks for the second engine."""
    target_architecture: str | None = None
    draft_architectures: Mapping[str, str] = field(default_factory=dict)
    """By draft name, from each checkpoint's config.json."""

    def within(self, since: str, before: str) -> bool:
        """Whether the version lies in [since, before); an empty ``before`` has no end."""
        own = release(self.version)
        return own >= release(since) and (not before or own < release(before))

    def attends_with(self, *backends: str) -> bool:
        """Whether the target's attention uses one of ``backends`` anywhere."""
        own = (self.attention_backend, self.prefill_attention_backend, self.decode_attention_backend)
        return any(backend in backends for backend in own)

    @property
    def drafts_with(self) -> str | None:
        """The attention backend of the draft."""
        return self.draft_attention_backend or self.decode_attention_backend or self.attention_backend

    @property
    def pages(self) -> int:
        """Tokens per KV page: as given, or what the backend forces, or 1."""
        forced = _FORCED_PAGES.get(self.attention_backend or "", 1)
        return max(self.page_size or 1, forced)


_FORCED_PAGES = {
    "flashmla": 64,
    "cutlass_mla": 128,
    "trtllm_mla": 64,
    "trtllm_mha": 64,
    "cutedsl_mla": 64,
    "tokenspeed_mla": 64,
}
