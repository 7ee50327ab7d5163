"""Rules of the EAGLE family: chains and trees of a draft model, adaptive chains, MTP heads inside the target."""

from __future__ import annotations

from sweeper.adaptive import AdaptivePolicy
from sweeper.rules.context import Context
from sweeper.rules.rule import Parameter, Rule
from sweeper.rules.shared import ANY, SHAPE, TREE, paged_tree, runs_on
from sweeper.rules.targets import MLA, bundles_mtp, multi_layer
from sweeper.speculation import NO_DRAFT, SpeculationConfig

_NO_DRAFT_BACKENDS = ("torch_native", "flex_attention", "cutlass_mla", "dual_chunk_flash_attn", "wave")


def draft_is_gemma4(c: SpeculationConfig, x: Context) -> bool:
    return (
        x.draft_architectures.get(c.draft, "").startswith("Gemma4")
        and "Assistant" in (x.draft_architectures[c.draft])
    )


def _nothing_to_draft_with(c: SpeculationConfig, x: Context) -> bool:
    if c.draft != NO_DRAFT or x.target_architecture is None:
        return False
    return not bundles_mtp(x.target_architecture, x)


_EAGLE_BACKENDS = (
    Rule(
        lambda c, x: c.topk > 1 and x.attends_with("trtllm_mha"),
        "the trtllm_mha backend only supports topk 1",
    ),
    Rule(
        paged_tree("flashinfer"),
        "topk > 1 with page_size {x.pages} needs --attention-backend flashinfer in this release",
        before="0.5.6",
    ),
    Rule(
        paged_tree("flashinfer", "fa3", None),
        "topk > 1 with page_size {x.pages} needs attention backend flashinfer or fa3, not {x.attention_backend}",
        since="0.5.6",
        before="0.5.13",
    ),
    Rule(
        paged_tree("flashinfer", "fa3", "triton", None),
        "topk > 1 with page_size {x.pages} needs attention backend flashinfer, fa3 or triton, "
        "not {x.attention_backend}",
        since="0.5.13",
    ),
    Rule(
        lambda c, x: (
            c.topk > 1
            and c.num_steps > 1
            and x.target_architecture in MLA
            and x.drafts_with in ("flashinfer", "trtllm_mla", "cutedsl_mla")
        ),
        "{x.drafts_with} for latent attention (MLA) only supports topk 1",
    ),
    Rule(
        lambda c, x: x.drafts_with in _NO_DRAFT_BACKENDS,
        "no draft runs on attention backend {x.drafts_with}",
    ),
    Rule(
        lambda c, x: c.topk > 1 and x.spec_v2,
        "the second engine (SGLANG_ENABLE_SPEC_V2, --enable-beta-spec) supports only topk 1 in this release",
        since="0.5.4",
        before="0.5.11",
    ),
    Rule(
        lambda c, x: multi_layer(c, x) and c.num_draft_tokens != c.num_steps + 1,
        "the multi-layer MTP of {x.target_architecture} needs num_draft_tokens = num_steps + 1",
        since="0.5.13",
    ),
    Rule(
        lambda c, x: multi_layer(c, x) and c.topk > 1,
        "the multi-layer MTP of {x.target_architecture} supports only topk 1",
        since="0.5.23",
    ),
    Rule(runs_on("cuda", "npu", "xpu", "hpu"), "not on device {x.device} in this release", before="0.5.18"),
)

EAGLE = (*SHAPE, *TREE, *ANY, *_EAGLE_BACKENDS)

PROMOTED = Rule(
    draft_is_gemma4,
    "a Gemma 4 assistant draft runs as FROZEN_KV_MTP",
    sets=lambda c, x: {"algorithm": "FROZEN_KV_MTP"},
    since="0.5.12",
)

OWN_HEADS = Rule(
    _nothing_to_draft_with,
    "without a draft, {c.algorithm} needs MTP heads inside the target, and {x.target_architecture} has none: "
    "the target would draft for itself",
)

TREE_PARAMETERS = (
    Parameter("num_steps", "speculative-num-steps", sets="num_steps", required=True),
    Parameter("topk", "speculative-eagle-topk", sets="topk", default=1),
    Parameter("num_draft_tokens", "speculative-num-draft-tokens", sets="num_draft_tokens"),
)

ADAPTIVE = Parameter("adaptive", "speculative-adaptive-config", reads=AdaptivePolicy.of, since="0.5.13")
"""Chains that change with the running batch; num_steps is the longest of them."""


def _adapts(c: SpeculationConfig) -> AdaptivePolicy | None:
    policy = c.option("adaptive")
    return None if policy is None else AdaptivePolicy.of(str(policy))


def _not_the_longest(c: SpeculationConfig, x: Context) -> bool:
    policy = _adapts(c)
    return policy is not None and c.num_steps != max(policy.steps)


ADAPTIVE_RULES = (
    Rule(lambda c, x: c.topk > 1 and _adapts(c) is not None, "adaptive speculation takes topk 1 only"),
    Rule(
        _not_the_longest,
        "num_steps must be the longest chain of the adaptive policy, for which everything is sized, not {c.num_steps}",
    ),
    Rule(
        lambda c, x: x.dp_attention and _adapts(c) is not None,
        "adaptive speculation does not go with DP attention",
    ),
    Rule(
        lambda c, x: multi_layer(c, x) and _adapts(c) is not None,
        "adaptive speculation does not go with the multi-layer MTP of {x.target_architecture}",
    ),
)
