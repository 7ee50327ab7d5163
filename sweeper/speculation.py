"""Speculation configs: what a study varies, and what every result is keyed by.

A *speculation config* is (algorithm, draft, num_steps s, topk k, num_draft_tokens n), where n counts the
verified tokens: the last committed one plus n-1 drafts. What was asked for is *requested*; what the server
runs after its own rules (``sweeper.rules``) is *effective*. Every result is keyed by the effective config.
"""

from __future__ import annotations

from dataclasses import dataclass

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


def tree_capacity(num_steps: int, topk: int) -> int:
    """Candidates that a draft tree offers: k + (s-1)·k².

    The first step proposes k tokens, every later one k for each of the k branches kept.

    >>> tree_capacity(3, 2)
    10
    """
    return topk + (num_steps - 1) * topk**2
