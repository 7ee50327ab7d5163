"""The table of all algorithms."""

from __future__ import annotations

from sweeper.rules.eagle import (
    ADAPTIVE,
    ADAPTIVE_RULES,
    EAGLE,
    OWN_HEADS,
    PROMOTED,
    TREE_PARAMETERS,
    draft_is_gemma4,
)
from sweeper.rules.rule import Algorithm, Parameter, Rule
from sweeper.rules.shared import ANY, SHAPE, TREE, dp_without_lm_head, paged_tree, positive, runs_on
from sweeper.speculation import SpeculationConfig

_ONE_STEP = Rule(
    lambda c, x: (c.num_steps, c.topk) != (1, 1),
    "{c.algorithm} forces num_steps 1 and topk 1",
    sets=lambda c, x: {"num_steps": 1, "topk": 1},
)


def _uno_fits(c: SpeculationConfig) -> bool:
    q, k, s = c.num_draft_tokens, c.topk, c.num_steps
    nodes = sum(k**level for level in range(s + 1))
    return s + 1 <= q <= min(128, nodes, k * (s - 1) + 2) and q * k <= 2048


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "EAGLE",
            (*TREE_PARAMETERS, ADAPTIVE),
            (PROMOTED, OWN_HEADS, *EAGLE, *ADAPTIVE_RULES),
            draft_optional=True,
        ),
        Algorithm(
            "EAGLE3",
            (*TREE_PARAMETERS, ADAPTIVE),
            (
                Rule(
                    draft_is_gemma4,
                    "a Gemma 4 assistant draft needs algorithm NEXTN or EAGLE",
                    since="0.5.12",
                ),
                *EAGLE,
                *ADAPTIVE_RULES,
            ),
        ),
        Algorithm(
            "NEXTN",
            TREE_PARAMETERS,
            (PROMOTED, OWN_HEADS, *EAGLE),
            needs_draft=False,
            draft_optional=True,
        ),
        Algorithm(
            "STANDALONE",
            TREE_PARAMETERS,
            (
                Rule(lambda c, x: x.dp_attention, "STANDALONE does not support DP attention"),
                *EAGLE,
            ),
        ),
        Algorithm(
            "FROZEN_KV_MTP",
            TREE_PARAMETERS,
            (
                SHAPE[0],
                Rule(
                    lambda c, x: c.topk == 1 and c.num_draft_tokens != c.num_steps + 1,
                    "a chain takes num_draft_tokens = num_steps + 1, and nothing sets it here: more is out of "
                    "range, fewer leaves drafts unverified",
                ),
                *TREE,
                *ANY,
                Rule(
                    lambda c, x: c.topk > 1 and x.drafts_with not in ("triton", None),
                    "topk > 1 needs attention backend triton, not {x.drafts_with}",
                    before="0.5.18",
                ),
                Rule(
                    lambda c, x: c.topk > 1 and x.drafts_with not in ("triton", "trtllm_mha", None),
                    "topk > 1 needs attention backend triton or trtllm_mha, not {x.drafts_with}",
                    since="0.5.18",
                ),
            ),
            since="0.5.12",
        ),
        Algorithm(
            "NGRAM",
            (
                Parameter("breadth", "speculative-ngram-max-bfs-breadth", sets="topk", default=10),
                Parameter(
                    "num_draft_tokens",
                    "speculative-num-draft-tokens",
                    sets="num_draft_tokens",
                    default=12,
                ),
                Parameter("max_trie_depth", "speculative-ngram-max-trie-depth", least=2, since="0.5.10"),
                Parameter(
                    "match_type", "speculative-ngram-match-type", choices=("BFS", "PROB"), since="0.5.10"
                ),
            ),
            (
                Rule(lambda c, x: c.topk < 1, "breadth must be at least 1"),
                Rule(lambda c, x: c.num_draft_tokens < 2, "num_draft_tokens must be at least 2"),
                Rule(
                    lambda c, x: c.num_steps != 0,
                    "NGRAM has no num_steps in this release",
                    sets=lambda c, x: {"num_steps": 0},
                    before="0.5.14",
                ),
                Rule(
                    lambda c, x: c.num_steps != c.num_draft_tokens // c.topk,
                    "NGRAM derives num_steps = num_draft_tokens // breadth",
                    sets=lambda c, x: {"num_steps": c.num_draft_tokens // c.topk},
                    since="0.5.14",
                ),
                Rule(
                    paged_tree("flashinfer", None),
                    "breadth > 1 with page_size {x.pages} needs attention backend flashinfer, "
                    "not {x.attention_backend}",
                ),
                Rule(lambda c, x: x.dp_attention, "NGRAM does not support DP attention"),
                Rule(runs_on("cuda"), "only on device cuda in this release", before="0.5.18"),
                Rule(runs_on("cuda", "cpu", "xpu"), "not on device {x.device}", since="0.5.18"),
                *ANY,
            ),
            since="0.5.4",
            learns=True,
            needs_draft=False,
            fixed={"num_steps": 0},
        ),
        Algorithm(
            "DFLASH",
            (
                Parameter(
                    "block_size",
                    "speculative-num-draft-tokens",
                    sets="num_draft_tokens",
                    required=True,
                ),
                Parameter("draft_window_size", "speculative-draft-window-size", since="0.5.11"),
            ),
            (
                _ONE_STEP,
                Rule(lambda c, x: c.num_draft_tokens < 2, "block_size must be at least 2"),
                Rule(
                    lambda c, x: (
                        int(dict(c.options).get("draft_window_size", c.num_draft_tokens)) < c.num_draft_tokens
                    ),
                    "draft_window_size must be at least block_size {c.num_draft_tokens}",
                ),
                Rule(
                    lambda c, x: x.dp_attention, "DFLASH does not support DP attention here", before="0.5.23"
                ),
                Rule(
                    dp_without_lm_head,
                    "DFLASH with DP attention needs --enable-dp-lm-head",
                    since="0.5.23",
                ),
                Rule(runs_on("cuda", "npu"), "not on device {x.device}", before="0.5.21"),
                Rule(runs_on("cuda", "npu", "xpu"), "not on device {x.device}", since="0.5.21"),
                *ANY,
            ),
            since="0.5.11",
            fixed={"num_steps": 1, "topk": 1},
            fixed_flags={"speculative-num-steps": 1, "speculative-eagle-topk": 1},
        ),
        Algorithm(
            "DSPARK",
            (
                Parameter(
                    "gamma", "speculative-dspark-block-size", sets="num_draft_tokens", plus=1, required=True
                ),
            ),
            (
                _ONE_STEP,
                Rule(lambda c, x: c.num_draft_tokens < 2, "gamma must be at least 1"),
                Rule(dp_without_lm_head, "DSPARK with DP attention needs --enable-dp-lm-head"),
                Rule(runs_on("cuda", "npu"), "not on device {x.device}", before="0.5.23"),
                Rule(runs_on("cuda", "npu", "xpu"), "not on device {x.device}", since="0.5.23"),
                *ANY,
            ),
            since="0.5.18",
            needs_draft=False,
            draft_optional=True,
            fixed={"num_steps": 1, "topk": 1},
            fixed_flags={"speculative-num-steps": 1, "speculative-eagle-topk": 1},
        ),
        Algorithm(
            "UNO",
            (
                Parameter("num_steps", "speculative-num-steps", sets="num_steps", default=1),
                Parameter("topk", "speculative-eagle-topk", sets="topk", default=1),
                Parameter(
                    "num_draft_tokens",
                    "speculative-num-draft-tokens",
                    sets="num_draft_tokens",
                    required=True,
                ),
            ),
            (
                Rule(positive, "num_steps and topk must be at least 1"),
                Rule(lambda c, x: c.num_draft_tokens < 1, "num_draft_tokens must be at least 1"),
                Rule(
                    lambda c, x: c.topk == 1 and c.num_steps != 1,
                    "UNO with topk 1 forces num_steps 1",
                    sets=lambda c, x: {"num_steps": 1},
                ),
                Rule(
                    lambda c, x: c.topk > 1 and not _uno_fits(c),
                    "UNO's tree takes num_draft_tokens from {least} to the smallest of 128, 2048 / topk, the nodes "
                    "of a topk-ary tree of num_steps levels, and 2 + topk * (num_steps - 1), "
                    "not {c.num_draft_tokens}",
                ),
                Rule(runs_on("cuda"), "UNO needs device cuda"),
                Rule(
                    lambda c, x: x.tensor_parallel > 1 or x.pipeline_parallel > 1, "UNO runs on a single GPU"
                ),
                Rule(lambda c, x: x.dp_attention, "UNO does not support DP attention"),
                Rule(
                    lambda c, x: any(
                        backend not in ("fa3", None)
                        for backend in (
                            x.prefill_attention_backend or x.attention_backend,
                            x.decode_attention_backend or x.attention_backend,
                        )
                    ),
                    "UNO needs attention backend fa3",
                ),
                *ANY,
            ),
            since="0.5.21",
            draft_flag="uno-lora-path",
        ),
    )
}
"""Every algorithm that some release between 0.5.2 and NEWEST_KNOWN has. UNO's draft is its LoRA checkpoint."""
