"""Targets, machines and drafts that ``benchmarks.synthetic_landscapes`` computes landscapes of; none of them exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DraftQuality:
    """``level``: logit of a first guess being right on average text; it falls by ``decay`` per step ahead.

    ``second``: share of the misses that the second guess would have met. ``cost``: a draft's size over the target's.
    """

    level: float
    decay: float = 0.08
    second: float = 0.38
    cost: float = 0.04


@dataclass(frozen=True)
class Machine:
    """Seconds: ``weights`` to read the target once, ``token`` to compute one token, ``launch`` of any forward pass,
    ``branch`` to build a tree, per branch and step, ``prefill`` of one request per output token.

    ``tile``: tokens that are computed together. ``experts``: how many, and how many a token uses.
    """

    weights: float
    token: float
    launch: float
    branch: float
    prefill: float
    tile: int = 8
    experts: tuple[int, int] = (1, 1)

    def forward(self, tokens: int, size: float = 1.0) -> float:
        """One pass over ``tokens`` of a model that is ``size`` times the target."""
        total, used = self.experts
        touched = 1 - (1 - used / total) ** tokens if total > 1 else 1.0
        tiles = -(-tokens // self.tile) * self.tile
        read, computed = self.weights * (0.15 + 0.85 * touched), tiles * self.token
        return size * (read**4 + computed**4) ** 0.25 + self.launch


@dataclass(frozen=True)
class Scene:
    name: str
    about: str
    machine: Machine
    drafts: Mapping[str, DraftQuality]
    loads: tuple[int, ...]
    grids: Sequence[Mapping[str, object]]
    start_s: float = 300.0
    out_of_memory: int = 10**9
    """Tokens verified at the highest load from which on the server runs out of memory."""
    seed: int = 0
    drift: float = 0.6
    """Correlation of neighbouring tokens' difficulty."""
    spread: float = 1.3
    """By how much difficulty moves a guess's logit."""
    ngram: DraftQuality = field(default_factory=lambda: DraftQuality(-0.7, 0.0, 0.1, 0.0))


CHAINS = {"num_steps": {"min": 1, "max": 12}, "topk": 1}
TREES = {
    "num_steps": [2, 3, 4, 5, 6, 8],
    "topk": [2, 4],
    "num_draft_tokens": [6, 8, 12, 16, 24, 32],
}
EAGLE3 = ({"algorithm": "EAGLE3", **CHAINS}, {"algorithm": "EAGLE3", **TREES})


SCENES = (
    Scene(
        "synthetic_dense",
        "A dense target that reads its weights in 12 ms, three checkpoints of one cheap draft",
        Machine(0.012, 0.00006, 0.0004, 0.00008, 0.0001),
        {
            "s1000": DraftQuality(-0.1, 0.25),
            "s4000": DraftQuality(0.8, 0.14),
            "s8000": DraftQuality(1.3, 0.08),
        },
        (1, 16, 64),
        EAGLE3,
        seed=1,
    ),
    Scene(
        "synthetic_experts",
        "A mixture of 256 experts, 8 per token: verifying more tokens reads more of them. Two drafts; large trees run "
        "out of memory",
        Machine(0.030, 0.00009, 0.0008, 0.0002, 0.0003, experts=(256, 8)),
        {"chat": DraftQuality(0.7, 0.1, cost=0.02), "code": DraftQuality(1.0, 0.3, cost=0.02)},
        (1, 8, 32),
        EAGLE3,
        start_s=1200.0,
        out_of_memory=1800,
        seed=2,
    ),
    Scene(
        "synthetic_slow_draft",
        "A draft step of a sixth of the target's and no spare compute, as on the CPU test bed: short configs win",
        Machine(0.008, 0.0011, 0.0003, 0.0002, 0.0016, tile=1),
        {
            "b010": DraftQuality(-0.7, 0.5, cost=0.15),
            "b035": DraftQuality(0.5, 0.2, cost=0.15),
            "b100": DraftQuality(1.0, 0.1, cost=0.15),
        },
        (1, 4, 16),
        EAGLE3,
        start_s=40.0,
        seed=3,
    ),
    Scene(
        "synthetic_algorithms",
        "EAGLE3, a stand-alone draft model that guesses better and costs five times as much, and NGRAM",
        Machine(0.016, 0.00008, 0.0006, 0.0001, 0.0002),
        {
            "eagle": DraftQuality(0.7, 0.12, cost=0.03),
            "small": DraftQuality(1.2, 0.03, cost=0.16),
        },
        (1, 8, 32),
        (
            {"algorithm": "EAGLE3", "drafts": "eagle", **CHAINS},
            {"algorithm": "EAGLE3", "drafts": "eagle", **TREES},
            {"algorithm": "STANDALONE", "drafts": "small", **CHAINS},
            {"algorithm": "STANDALONE", "drafts": "small", **TREES, "topk": 2},
            {"algorithm": "NGRAM", "breadth": [1, 4], "num_draft_tokens": [4, 8, 12, 16]},
        ),
        seed=4,
    ),
)


HELD_OUT = (
    Scene(
        "held_out_wide_server",
        "A large dense target on many GPUs: forward passes cost a lot to start; its text is monotonous",
        Machine(0.022, 0.00004, 0.0012, 0.0003, 0.0002, tile=16),
        {"long": DraftQuality(0.9, 0.04, cost=0.02), "short": DraftQuality(1.5, 0.22, cost=0.02)},
        (1, 32),
        EAGLE3,
        start_s=900.0,
        seed=11,
        drift=0.9,
        spread=1.6,
    ),
    Scene(
        "held_out_small_gpu",
        "A small target on a slow GPU: computing soon takes longer than reading; four checkpoints, even text",
        Machine(0.006, 0.00022, 0.0005, 0.00015, 0.0006, tile=4),
        {f"e{i}": DraftQuality(level, 0.12, 0.3, 0.07) for i, level in enumerate((-0.9, -0.1, 0.5, 0.8))},
        (1, 8),
        EAGLE3,
        start_s=60.0,
        seed=12,
        drift=0.2,
        spread=0.7,
    ),
    Scene(
        "held_out_experts",
        "A mixture of 64 experts, 4 per token, a stand-alone draft model beside an EAGLE3 draft",
        Machine(0.018, 0.00012, 0.0009, 0.0001, 0.0004, experts=(64, 4)),
        {"eagle": DraftQuality(0.6, 0.16, 0.45, 0.03), "small": DraftQuality(1.4, 0.02, 0.3, 0.12)},
        (1, 16),
        (
            {"algorithm": "EAGLE3", "drafts": "eagle", **CHAINS},
            {"algorithm": "EAGLE3", "drafts": "eagle", **TREES},
            {"algorithm": "STANDALONE", "drafts": "small", **CHAINS},
        ),
        start_s=600.0,
        seed=13,
        drift=0.75,
        spread=1.0,
    ),
)
