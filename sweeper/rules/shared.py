"""Rules and conditions that several algorithms share."""

from __future__ import annotations

from sweeper.rules.context import Context
from sweeper.rules.rule import Rule, When
from sweeper.speculation import SpeculationConfig, tree_capacity


def positive(c: SpeculationConfig, x: Context) -> bool:
    return c.num_steps < 1 or c.topk < 1


def too_wide(c: SpeculationConfig, x: Context) -> bool:
    return c.topk > 1 and not 2 <= c.num_draft_tokens <= 1 + tree_capacity(c.num_steps, c.topk)


def too_narrow(c: SpeculationConfig, x: Context) -> bool:
    return c.topk > 1 and c.num_draft_tokens < c.num_steps + 1


def paged_tree(*backends: str | None) -> When:
    return lambda c, x: c.topk > 1 and x.pages > 1 and x.attention_backend not in backends


def runs_on(*devices: str) -> When:
    return lambda c, x: x.device not in devices


def dp_without_lm_head(c: SpeculationConfig, x: Context) -> bool:
    return x.dp_attention and not x.dp_lm_head


ANY = (
    Rule(
        lambda c, x: x.attends_with("flex_attention"),
        "flex_attention does not speculate",
        since="0.5.4",
    ),
    Rule(
        lambda c, x: x.pipeline_parallel > 1,
        "pipeline parallelism excludes speculation in this release",
        before="0.5.21",
    ),
    Rule(
        lambda c, x: x.pipeline_parallel > 1 and c.algorithm not in ("EAGLE", "NEXTN"),
        "with pipeline parallelism only EAGLE speculates",
        since="0.5.21",
    ),
    Rule(
        lambda c, x: x.pipeline_parallel > 1 and not x.pp_speculates,
        "speculation with pipeline parallelism needs SGLANG_ENABLE_PP_SPEC=1 in engine.env",
        since="0.5.21",
    ),
    Rule(
        lambda c, x: x.lora and c.algorithm != "NGRAM",
        "LoRA goes only with NGRAM in this release",
        since="0.5.6",
        before="0.5.21",
    ),
    Rule(
        lambda c, x: x.lora and c.algorithm in ("STANDALONE", "FROZEN_KV_MTP", "UNO"),
        "LoRA does not go with {c.algorithm}",
        since="0.5.21",
    ),
    Rule(
        lambda c, x: (
            x.target_architecture == "DeepseekV4ForCausalLM"
            and (c.topk > 1 or c.algorithm not in ("EAGLE", "NEXTN", "DSPARK"))
        ),
        "DeepSeek V4 speculates only with EAGLE (NEXTN) or DSPARK, and topk 1",
        since="0.5.12",
    ),
)

SHAPE = (
    Rule(positive, "num_steps and topk must be at least 1"),
    Rule(
        lambda c, x: c.topk == 1 and c.num_draft_tokens != c.num_steps + 1,
        "topk 1 forces num_draft_tokens = num_steps + 1",
        sets=lambda c, x: {"num_draft_tokens": c.num_steps + 1},
    ),
)

TREE = (
    Rule(
        too_wide,
        "a tree of {c.num_steps} steps and topk {c.topk} takes num_draft_tokens from 2 "
        "to {most} (1 + topk + (num_steps - 1) * topk^2), not {c.num_draft_tokens}",
        before="0.5.13",
    ),
    Rule(
        lambda c, x: too_wide(c, x) or too_narrow(c, x),
        "a tree of {c.num_steps} steps and topk {c.topk} takes num_draft_tokens from {least} (num_steps + 1) "
        "to {most} (1 + topk + (num_steps - 1) * topk^2), not {c.num_draft_tokens}",
        since="0.5.13",
    ),
)
