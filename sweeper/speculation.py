"""Speculation configs and the rules by which SGLang changes or refuses them.

A *speculation config* is (algorithm, draft, num_steps s, topk k, num_draft_tokens n), where n counts the
verified tokens: the last committed one plus n-1 drafts. What was asked for is *requested*; what the server
runs after its own rules is *effective*. Every result is keyed by the effective config.

Source of the rules: SGLang's argument handling, read in the releases 0.5.2 to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

NO_DRAFT = "none"
"""Draft name of configs that need no draft checkpoint (NGRAM, MTP heads inside the target, no speculation)."""


@dataclass(frozen=True, order=True)
class SpeculationConfig:
    """One point of the search space. ``num_draft_tokens`` counts the committed token too."""

    algorithm: str
    draft: str
    num_steps: int
    topk: int
    num_draft_tokens: int

    @property
    def speculates(self) -> bool:
        return self.algorithm != "NONE"

    @property
    def shape(self) -> str:
        """``steps/topk/draft tokens``, the field's shorthand."""
        return f"{self.num_steps}/{self.topk}/{self.num_draft_tokens}"

    def __str__(self) -> str:
        if not self.speculates:
            return "no speculation"
        draft = "" if self.draft == NO_DRAFT else f" {self.draft}"
        return f"{self.algorithm}{draft} {self.shape}"


NO_SPECULATION = SpeculationConfig("NONE", NO_DRAFT, 0, 0, 1)
"""The baseline arm; it may win."""


@dataclass(frozen=True)
class Override:
    """SGLang replaces a requested value by its own."""

    parameter: str
    requested: int
    effective: int
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


def resolve_eagle_family(requested: SpeculationConfig) -> Resolution:
    """EAGLE, EAGLE3, NEXTN, STANDALONE: a chain for topk 1, otherwise a tree of the best n-1 candidates.

    Raises:
        InvalidSpeculationError: steps or topk below 1, a tree with more tokens than candidates ("selected index
            k out of range"), or with fewer than num_steps + 1 (0.5.23 then crashes while it packs the accepted
            path, which may be num_steps + 1 long).
    """
    s, k, n = requested.num_steps, requested.topk, requested.num_draft_tokens
    if s < 1 or k < 1:
        raise InvalidSpeculationError(requested, "num_steps and topk must be at least 1")
    if k == 1:
        if n == s + 1:
            return Resolution(requested)
        override = Override("num_draft_tokens", n, s + 1, "topk 1 forces num_draft_tokens = num_steps + 1")
        return Resolution(replace(requested, num_draft_tokens=s + 1), (override,))
    most = 1 + tree_capacity(s, k)
    if not s + 1 <= n <= most:
        raise InvalidSpeculationError(
            requested,
            f"a tree of {s} steps and topk {k} takes num_draft_tokens from {s + 1} (num_steps + 1) "
            f"to {most} (1 + topk + (num_steps - 1) * topk^2), not {n}",
        )
    return Resolution(requested)


def resolve_ngram(requested: SpeculationConfig) -> Resolution:
    """NGRAM: ``topk`` is the greatest breadth of the trie search, ``num_draft_tokens`` the tree's size.

    SGLang derives ``num_steps`` as n // breadth when it is not given; it is never given.
    """
    n, breadth = requested.num_draft_tokens, requested.topk
    if breadth < 1 or n < 2:
        raise InvalidSpeculationError(requested, "NGRAM needs topk (breadth) >= 1 and num_draft_tokens >= 2")
    steps = n // breadth
    if requested.num_steps == steps:
        return Resolution(requested)
    override = Override(
        "num_steps", requested.num_steps, steps, "NGRAM derives num_steps = num_draft_tokens // topk"
    )
    return Resolution(replace(requested, num_steps=steps), (override,))


@dataclass(frozen=True)
class Algorithm:
    """What the sweep needs to know of one of SGLang's speculative algorithms."""

    name: str
    resolve: Callable[[SpeculationConfig], Resolution]
    needs_draft: bool
    draft_optional: bool = False


ALGORITHMS = {
    algorithm.name: algorithm
    for algorithm in (
        Algorithm("EAGLE", resolve_eagle_family, needs_draft=True, draft_optional=True),
        Algorithm("EAGLE3", resolve_eagle_family, needs_draft=True),
        Algorithm("NEXTN", resolve_eagle_family, needs_draft=False, draft_optional=True),
        Algorithm("STANDALONE", resolve_eagle_family, needs_draft=True),
        Algorithm("NGRAM", resolve_ngram, needs_draft=False),
    )
}


def effective(requested: SpeculationConfig) -> Resolution:
    """The config SGLang will run when asked for ``requested``; idempotent.

    Raises:
        InvalidSpeculationError: SGLang refuses or crashes on it; nothing must be launched.
    """
    if not requested.speculates:
        return Resolution(NO_SPECULATION)
    return ALGORITHMS[requested.algorithm].resolve(requested)
