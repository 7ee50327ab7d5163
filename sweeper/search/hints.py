"""What is known of a space before its first launch: from earlier studies, and from an offline acceptance map.

A hint is worth as much as its error says. Since workloads, releases and machines change, the errors are wide, and hints
that the study's own launches contradict lose their weight (``sweeper.search.trust``): a wrong one costs launches, but
does not trap the search.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pydantic import TypeAdapter

from sweeper.errors import SweeperError
from sweeper.search.outcome import Outcome
from sweeper.speculation import SpeculationConfig

EARLIER_LENGTH = 0.06
"""Standard deviation of ln A between two studies of one draft: other prompts, another release."""
EARLIER_COST = 0.12
"""The same of ln ρ."""
FROM_MAP = 0.03
"""How far (ln) an offline map's accept length is off the server's."""
MOST_FROM_MAP = 150
"""Configs of a map that count: the model interpolates between them, and its effort grows with their cube."""


@dataclass(frozen=True)
class Hint:
    """The logarithm of a config's accept length or cost, and its standard deviation."""

    config: SpeculationConfig
    value: float
    error: float


@dataclass(frozen=True)
class Hints:
    """Prior knowledge: of ln A, and of ln ρ."""

    accept_length: tuple[Hint, ...] = ()
    cost: tuple[Hint, ...] = ()

    def doubted(self, lengths: float, costs: float) -> Hints:
        """The same with errors so many times as wide; 1 leaves them.

        What is wrong in a map or an earlier study is wrong in all of it. So all accept lengths of one draft together,
        and all costs, then say no more than one of them would: n errors grow by the root of n beside.
        """
        per_draft = Counter(hint.config.draft for hint in self.accept_length)
        return Hints(
            tuple(_wider(hint, lengths, per_draft[hint.config.draft]) for hint in self.accept_length),
            tuple(_wider(hint, costs, len(self.cost)) for hint in self.cost),
        )

    def __add__(self, other: Hints) -> Hints:
        return Hints(self.accept_length + other.accept_length, self.cost + other.cost)


def _wider(hint: Hint, factor: float, together: int) -> Hint:
    return hint if factor == 1 else replace(hint, error=hint.error * factor * math.sqrt(together))


NOTHING = Hints()
hints_json: TypeAdapter[Hints] = TypeAdapter(Hints)


class OfflineMap(Protocol):
    """Accept lengths that were computed without a server."""

    def accept_length(self, draft: str, steps: int, topk: int, n: int) -> tuple[float, float]:
        """(accept length, its standard error). Raises KeyError or SweeperError where the map does not cover it."""
        ...


def from_map(known: OfflineMap, candidates: Sequence[SpeculationConfig]) -> Hints:
    """What a map says of the candidates, evenly thinned out where they are many."""
    thinned = candidates[:: -(-len(candidates) // MOST_FROM_MAP)] if candidates else ()
    hints = []
    for config in thinned:
        try:
            value, error = known.accept_length(
                config.draft, config.num_steps, config.topk, config.num_draft_tokens
            )
        except (KeyError, SweeperError):
            continue
        value = max(value, 1.0)
        hints.append(Hint(config, math.log(value), math.hypot(FROM_MAP, error / value)))
    return Hints(tuple(hints))


def from_earlier(outcomes: Iterable[Outcome], drafts: Mapping[str, str]) -> Hints:
    """What an earlier study of the same target says; ``drafts``: this study's names by that study's.

    Accept lengths count for the same drafts only, costs for all: they follow from a draft's architecture alone.
    """
    lengths, costs = [], []
    for known in outcomes:
        config = replace(known.config, draft=drafts.get(known.config.draft, f"earlier {known.config.draft}"))
        if known.config.draft in drafts:
            error = math.hypot(EARLIER_LENGTH, known.accept_error)
            lengths.append(Hint(config, known.log_accept_length, error))
        costs.append(Hint(config, known.log_cost, math.hypot(EARLIER_COST, known.speedup_error)))
    return Hints(tuple(lengths), tuple(costs))
