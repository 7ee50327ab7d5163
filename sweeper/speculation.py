"""Speculation configs and the rules by which SGLang changes or refuses them.

A *speculation config* is (algorithm, draft, num_steps s, topk k, num_draft_tokens n), where n counts the
verified tokens: the last committed one plus n-1 drafts. What was asked for is *requested*; what the server
runs after its own rules is *effective*. Every result is keyed by the effective config.

``ALGORITHMS`` is the table: per algorithm its parameters, the flags that carry them, and the rules, each with
the releases that have it. A new algorithm is a new entry, a new release a new bound on a rule.

Source of the rules: SGLang's argument handling and workers, read in the releases 0.5.2, .4, .6, .9 to .15, .18 and
.21 to .23. A change between two of them that were not read counts from the later one. A release newer than all of
them gets the newest rules; what its server reports is compared with them on every launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from sweeper.adaptive import AdaptivePolicy
from sweeper.releases import NEWEST_KNOWN, release

NO_DRAFT = "none"
"""Draft name of configs that need no draft checkpoint (NGRAM, MTP heads inside the target, no speculation)."""

Value = int | str


@dataclass(frozen=True, order=True)
class SpeculationConfig:
    """One point of the search space. ``num_draft_tokens`` counts the committed token too.

    ``options`` are the algorithm's parameters beyond the three numbers, as sorted (name, value) pairs.
    """

    algorithm: str
    draft: str
    num_steps: int
    topk: int
    num_draft_tokens: int
    options: tuple[tuple[str, Value], ...] = ()

    @property
    def speculates(self) -> bool:
        return self.algorithm != "NONE"

    @property
    def shape(self) -> str:
        """``steps/topk/draft tokens``, the field's shorthand."""
        return f"{self.num_steps}/{self.topk}/{self.num_draft_tokens}"

    def option(self, name: str) -> Value | None:
        """The value of one of ``options``, None where it is left to SGLang."""
        return dict(self.options).get(name)

    def __str__(self) -> str:
        if not self.speculates:
            return "no speculation"
        words = [self.algorithm, *([] if self.draft == NO_DRAFT else [self.draft]), self.shape]
        return " ".join([*words, *(f"{name}={value}" for name, value in self.options)])


NO_SPECULATION = SpeculationConfig("NONE", NO_DRAFT, 0, 0, 1)
"""The baseline arm; it may win."""


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


@dataclass(frozen=True)
class Override:
    """SGLang replaces a requested value by its own."""

    parameter: str
    requested: Value
    effective: Value
    rule: str

    def __str__(self) -> str:
        return f"{self.parameter} {self.requested} -> {self.effective}: {self.rule}"


@dataclass(frozen=True)
class Resolution:
    """What SGLang will run for a requested config, and what it changes on the way."""

    effective: SpeculationConfig
    overrides: tuple[Override, ...] = ()


class InvalidSpeculationError(ValueError):
    """SGLang refuses this config, or crashes on it. ``rule`` says which rule it breaks."""

    def __init__(self, config: SpeculationConfig, rule: str) -> None:
        self.config, self.rule = config, rule
        super().__init__(f"{config}: {rule}")


def tree_capacity(num_steps: int, topk: int) -> int:
    """Candidates that a draft tree offers: k + (s-1)·k².

    The first step proposes k tokens, every later one k for each of the k branches kept.

    >>> tree_capacity(3, 2)
    10
    """
    return topk + (num_steps - 1) * topk**2


When = Callable[[SpeculationConfig, Context], bool]
Sets = Callable[[SpeculationConfig, Context], Mapping[str, Value]]


@dataclass(frozen=True)
class Rule:
    """One of SGLang's rules: in which releases, for which configs, and what it does to them.

    ``says`` is for people; ``{c...}`` in it is the config and ``{x...}`` the context. A rule that ``sets``
    nothing rejects.
    """

    when: When
    says: str
    sets: Sets | None = None
    since: str = "0.5.2"
    before: str = ""

    def applies(self, config: SpeculationConfig, context: Context) -> bool:
        return context.within(self.since, self.before) and self.when(config, context)

    def text(self, config: SpeculationConfig, context: Context) -> str:
        most = 1 + tree_capacity(max(config.num_steps, 1), max(config.topk, 1))
        return self.says.format(c=config, x=context, most=most, least=config.num_steps + 1)


@dataclass(frozen=True)
class Parameter:
    """What a study may vary in an algorithm.

    ``name`` is its key in a study file, ``flag`` the server's. ``sets`` names the field of SpeculationConfig that
    holds it, increased by ``plus``, and has rules of its own; without one it is an option, from ``least`` on.
    """

    name: str
    flag: str
    sets: str | None = None
    plus: int = 0
    least: int = 1
    choices: tuple[str, ...] = ()
    reads: Callable[[str], object] | None = None
    """Instead of choices: what reads a text, and raises ValueError with the reason where it is none."""
    default: Value | None = None
    """What a grid without it asks for; None leaves it to SGLang, unless it is ``required``."""
    required: bool = False
    since: str = "0.5.2"


@dataclass(frozen=True)
class Algorithm:
    """One of SGLang's speculative algorithms."""

    name: str
    parameters: tuple[Parameter, ...]
    rules: tuple[Rule, ...]
    since: str = "0.5.2"
    needs_draft: bool = True
    draft_optional: bool = False
    draft_flag: str = "speculative-draft-model-path"
    fixed: Mapping[str, int] = field(default_factory=dict)
    """Fields of SpeculationConfig that no parameter sets."""
    fixed_flags: Mapping[str, int] = field(default_factory=dict)
    learns: bool = False
    """Whether it drafts from the traffic it has seen, so that it is measured cold and warm."""

    def parameter(self, name: str) -> Parameter | None:
        return next((p for p in self.parameters if p.name == name), None)

    def asks_for(self, name: str) -> bool:
        """Whether a field of SpeculationConfig is a person's choice here; a derived one needs no mention."""
        return name == "algorithm" or any(p.sets == name for p in self.parameters)

    def request(self, draft: str, values: Mapping[str, Value]) -> SpeculationConfig:
        """The config that a study asks for with ``values`` by parameter name.

        A missing ``num_draft_tokens`` of a chain is ``num_steps`` + 1, which SGLang would force anyway.
        """
        numbers: dict[str, int] = {"num_steps": 1, "topk": 1, **self.fixed}
        options: dict[str, Value] = {}
        for parameter in self.parameters:
            value = values.get(parameter.name, parameter.default)
            if value is None:
                continue
            if parameter.sets:
                numbers[parameter.sets] = int(value) + parameter.plus
            else:
                options[parameter.name] = value
        numbers.setdefault("num_draft_tokens", numbers["num_steps"] + 1)
        return SpeculationConfig(self.name, draft, **numbers, options=tuple(sorted(options.items())))

    def flags(self, config: SpeculationConfig) -> dict[str, Value]:
        """The server flags that carry a config's parameters."""
        flags: dict[str, Value] = {**self.fixed_flags}
        for parameter in self.parameters:
            value: Value | None
            if parameter.sets:
                value = int(getattr(config, parameter.sets)) - parameter.plus
            else:
                value = config.option(parameter.name)
            if value is not None:
                flags[parameter.flag] = value
        return flags


def _positive(c: SpeculationConfig, x: Context) -> bool:
    return c.num_steps < 1 or c.topk < 1


def _tree(c: SpeculationConfig, x: Context) -> bool:
    return c.topk > 1


def _too_wide(c: SpeculationConfig, x: Context) -> bool:
    return c.topk > 1 and not 2 <= c.num_draft_tokens <= 1 + tree_capacity(c.num_steps, c.topk)


def _too_narrow(c: SpeculationConfig, x: Context) -> bool:
    return c.topk > 1 and c.num_draft_tokens < c.num_steps + 1


def _paged_tree(*backends: str | None) -> When:
    return lambda c, x: c.topk > 1 and x.pages > 1 and x.attention_backend not in backends


def _runs_on(*devices: str) -> When:
    return lambda c, x: x.device not in devices


def _dp_without_lm_head(c: SpeculationConfig, x: Context) -> bool:
    return x.dp_attention and not x.dp_lm_head


def _draft_is_gemma4(c: SpeculationConfig, x: Context) -> bool:
    return (
        x.draft_architectures.get(c.draft, "").startswith("Gemma4")
        and "Assistant" in (x.draft_architectures[c.draft])
    )


_BUNDLED_MTP = {
    "0.5.2": "DeepseekV3 Glm4Moe LongcatFlash MiMo Ernie4_5_Moe Qwen3Next",
    "0.5.4": "DeepseekV32 BailingMoe BailingMoeV2",
    "0.5.9": (
        "Glm4MoeLite GlmMoeDsa BailingMoeV2_5 MistralLarge3 Pixtral ExaoneMoE GlmOcr MiMoV2Flash NemotronH "
        "Qwen3_5 Qwen3_5Moe Step3p5"
    ),
    "0.5.11": "HYV3 MiMoV2",
    "0.5.12": "DeepseekV4 InternS2Preview",
    "0.5.13": "Qwen3Moe NemotronHPuzzle Step3p7",
    "0.5.18": "Inkling InternS2Mobius",
    "0.5.21": "HYV4 Qwen4Exp BailingMoeV3 GigaChat35 Glm5Next NemotronH_Omni",
}
"""Targets that can draft with MTP heads of their own, by the first release (read) that knows them; architectures
without their suffix (ForCausalLM, ForConditionalGeneration)."""


def bundles_mtp(architecture: str, context: Context) -> bool:
    """Whether SGLang finds MTP heads inside a target of this architecture."""
    name = architecture.split("For")[0]
    return any(context.within(since, "") and name in names.split() for since, names in _BUNDLED_MTP.items())


def _nothing_to_draft_with(c: SpeculationConfig, x: Context) -> bool:
    if c.draft != NO_DRAFT or x.target_architecture is None:
        return False
    return not bundles_mtp(x.target_architecture, x)


_MLA = (
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "Glm4MoeLiteForCausalLM",
    "KimiK25ForConditionalGeneration",
    "KimiVLForConditionalGeneration",
    "LongcatFlashForCausalLM",
)
"""Targets with latent attention."""

_NO_DRAFT_BACKENDS = ("torch_native", "flex_attention", "cutlass_mla", "dual_chunk_flash_attn", "wave")

_MULTI_LAYER = {
    "MiMoV2FlashForCausalLM": "0.5.9",
    "MiMoV2ForCausalLM": "0.5.9",
    "Step3p5ForCausalLM": "0.5.9",
    "GigaChat35ForCausalLM": "0.5.21",
}
"""Targets whose EAGLE drafts have several layers, and since when SGLang runs them so."""


def _multi_layer(c: SpeculationConfig, x: Context) -> bool:
    since = _MULTI_LAYER.get(x.target_architecture or "")
    return since is not None and x.within(since, "") and c.algorithm in ("EAGLE", "NEXTN")


_ANY = (
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

_SHAPE = (
    Rule(_positive, "num_steps and topk must be at least 1"),
    Rule(
        lambda c, x: c.topk == 1 and c.num_draft_tokens != c.num_steps + 1,
        "topk 1 forces num_draft_tokens = num_steps + 1",
        sets=lambda c, x: {"num_draft_tokens": c.num_steps + 1},
    ),
)

_TREE = (
    Rule(
        _too_wide,
        "a tree of {c.num_steps} steps and topk {c.topk} takes num_draft_tokens from 2 "
        "to {most} (1 + topk + (num_steps - 1) * topk^2), not {c.num_draft_tokens}",
        before="0.5.13",
    ),
    Rule(
        lambda c, x: _too_wide(c, x) or _too_narrow(c, x),
        "a tree of {c.num_steps} steps and topk {c.topk} takes num_draft_tokens from {least} (num_steps + 1) "
        "to {most} (1 + topk + (num_steps - 1) * topk^2), not {c.num_draft_tokens}",
        since="0.5.13",
    ),
)

_EAGLE_BACKENDS = (
    Rule(
        lambda c, x: c.topk > 1 and x.attends_with("trtllm_mha"),
        "the trtllm_mha backend only supports topk 1",
    ),
    Rule(
        _paged_tree("flashinfer"),
        "topk > 1 with page_size {x.pages} needs --attention-backend flashinfer in this release",
        before="0.5.6",
    ),
    Rule(
        _paged_tree("flashinfer", "fa3", None),
        "topk > 1 with page_size {x.pages} needs attention backend flashinfer or fa3, not {x.attention_backend}",
        since="0.5.6",
        before="0.5.13",
    ),
    Rule(
        _paged_tree("flashinfer", "fa3", "triton", None),
        "topk > 1 with page_size {x.pages} needs attention backend flashinfer, fa3 or triton, "
        "not {x.attention_backend}",
        since="0.5.13",
    ),
    Rule(
        lambda c, x: (
            c.topk > 1
            and c.num_steps > 1
            and x.target_architecture in _MLA
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
        lambda c, x: _multi_layer(c, x) and c.num_draft_tokens != c.num_steps + 1,
        "the multi-layer MTP of {x.target_architecture} needs num_draft_tokens = num_steps + 1",
        since="0.5.13",
    ),
    Rule(
        lambda c, x: _multi_layer(c, x) and c.topk > 1,
        "the multi-layer MTP of {x.target_architecture} supports only topk 1",
        since="0.5.23",
    ),
    Rule(_runs_on("cuda", "npu", "xpu", "hpu"), "not on device {x.device} in this release", before="0.5.18"),
)

_EAGLE = (*_SHAPE, *_TREE, *_ANY, *_EAGLE_BACKENDS)

_PROMOTED = Rule(
    _draft_is_gemma4,
    "a Gemma 4 assistant draft runs as FROZEN_KV_MTP",
    sets=lambda c, x: {"algorithm": "FROZEN_KV_MTP"},
    since="0.5.12",
)

_OWN_HEADS = Rule(
    _nothing_to_draft_with,
    "without a draft, {c.algorithm} needs MTP heads inside the target, and {x.target_architecture} has none: "
    "the target would draft for itself",
)

_TREE_PARAMETERS = (
    Parameter("num_steps", "speculative-num-steps", sets="num_steps", required=True),
    Parameter("topk", "speculative-eagle-topk", sets="topk", default=1),
    Parameter("num_draft_tokens", "speculative-num-draft-tokens", sets="num_draft_tokens"),
)

_ADAPTIVE = Parameter("adaptive", "speculative-adaptive-config", reads=AdaptivePolicy.of, since="0.5.13")
"""Chains that change with the running batch; num_steps is the longest of them."""


def _adapts(c: SpeculationConfig) -> AdaptivePolicy | None:
    policy = c.option("adaptive")
    return None if policy is None else AdaptivePolicy.of(str(policy))


def _not_the_longest(c: SpeculationConfig, x: Context) -> bool:
    policy = _adapts(c)
    return policy is not None and c.num_steps != max(policy.steps)


_ADAPTIVE_RULES = (
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
        lambda c, x: _multi_layer(c, x) and _adapts(c) is not None,
        "adaptive speculation does not go with the multi-layer MTP of {x.target_architecture}",
    ),
)

_ONE_STEP = Rule(
    lambda c, x: (c.num_steps, c.topk) != (1, 1),
    "{c.algorithm} forces num_steps 1 and topk 1",
    sets=lambda c, x: {"num_steps": 1, "topk": 1},
)

ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm(
            "EAGLE",
            (*_TREE_PARAMETERS, _ADAPTIVE),
            (_PROMOTED, _OWN_HEADS, *_EAGLE, *_ADAPTIVE_RULES),
            draft_optional=True,
        ),
        Algorithm(
            "EAGLE3",
            (*_TREE_PARAMETERS, _ADAPTIVE),
            (
                Rule(
                    _draft_is_gemma4,
                    "a Gemma 4 assistant draft needs algorithm NEXTN or EAGLE",
                    since="0.5.12",
                ),
                *_EAGLE,
                *_ADAPTIVE_RULES,
            ),
        ),
        Algorithm(
            "NEXTN",
            _TREE_PARAMETERS,
            (_PROMOTED, _OWN_HEADS, *_EAGLE),
            needs_draft=False,
            draft_optional=True,
        ),
        Algorithm(
            "STANDALONE",
            _TREE_PARAMETERS,
            (
                Rule(lambda c, x: x.dp_attention, "STANDALONE does not support DP attention"),
                *_EAGLE,
            ),
        ),
        Algorithm(
            "FROZEN_KV_MTP",
            _TREE_PARAMETERS,
            (
                _SHAPE[0],
                Rule(
                    lambda c, x: c.topk == 1 and c.num_draft_tokens != c.num_steps + 1,
                    "a chain takes num_draft_tokens = num_steps + 1, and nothing sets it here: more is out of "
                    "range, fewer leaves drafts unverified",
                ),
                *_TREE,
                *_ANY,
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
                    _paged_tree("flashinfer", None),
                    "breadth > 1 with page_size {x.pages} needs attention backend flashinfer, "
                    "not {x.attention_backend}",
                ),
                Rule(lambda c, x: x.dp_attention, "NGRAM does not support DP attention"),
                Rule(_runs_on("cuda"), "only on device cuda in this release", before="0.5.18"),
                Rule(_runs_on("cuda", "cpu", "xpu"), "not on device {x.device}", since="0.5.18"),
                *_ANY,
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
                    _dp_without_lm_head,
                    "DFLASH with DP attention needs --enable-dp-lm-head",
                    since="0.5.23",
                ),
                Rule(_runs_on("cuda", "npu"), "not on device {x.device}", before="0.5.21"),
                Rule(_runs_on("cuda", "npu", "xpu"), "not on device {x.device}", since="0.5.21"),
                *_ANY,
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
                Rule(_dp_without_lm_head, "DSPARK with DP attention needs --enable-dp-lm-head"),
                Rule(_runs_on("cuda", "npu"), "not on device {x.device}", before="0.5.23"),
                Rule(_runs_on("cuda", "npu", "xpu"), "not on device {x.device}", since="0.5.23"),
                *_ANY,
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
                Rule(_positive, "num_steps and topk must be at least 1"),
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
                Rule(_runs_on("cuda"), "UNO needs device cuda"),
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
                *_ANY,
            ),
            since="0.5.21",
            draft_flag="uno-lora-path",
        ),
    )
}
"""Every algorithm that some release between 0.5.2 and NEWEST_KNOWN has. UNO's draft is its LoRA checkpoint."""


def _uno_fits(c: SpeculationConfig) -> bool:
    q, k, s = c.num_draft_tokens, c.topk, c.num_steps
    nodes = sum(k**level for level in range(s + 1))
    return s + 1 <= q <= min(128, nodes, k * (s - 1) + 2) and q * k <= 2048


def effective(requested: SpeculationConfig, context: Context = Context()) -> Resolution:
    """The config SGLang will run when asked for ``requested``; idempotent.

    Raises:
        InvalidSpeculationError: SGLang refuses or crashes on it; nothing must be launched.
    """
    if not requested.speculates:
        return Resolution(NO_SPECULATION)
    algorithm = ALGORITHMS[requested.algorithm]
    if not context.within(algorithm.since, ""):
        raise InvalidSpeculationError(
            requested, f"SGLang {context.version} has no {algorithm.name}; it came with {algorithm.since}"
        )
    for name, _ in requested.options:
        parameter = algorithm.parameter(name)
        if parameter is None or not context.within(parameter.since, ""):
            raise InvalidSpeculationError(
                requested, f"{algorithm.name} of SGLang {context.version} has no {name}"
            )
    config = requested
    overrides: tuple[Override, ...] = ()
    for rule in algorithm.rules:
        if not rule.applies(config, context):
            continue
        if rule.sets is None:
            raise InvalidSpeculationError(requested, rule.text(config, context))
        values = {k: v for k, v in rule.sets(config, context).items() if getattr(config, k) != v}
        text = rule.text(config, context)
        overrides += tuple(
            Override(k, getattr(config, k), v, text) for k, v in values.items() if algorithm.asks_for(k)
        )
        config = replace(config, **values)  # type: ignore[arg-type]
        if config.algorithm != algorithm.name:
            rest = effective(config, context)
            return Resolution(rest.effective, overrides + rest.overrides)
    return Resolution(config, overrides)
