"""From a study file to the list of distinct valid candidates. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from sweeper.config import Grid, Space
from sweeper.rules.algorithms import ALGORITHMS
from sweeper.rules.context import Context
from sweeper.rules.effective import InvalidSpeculationError, Override, effective
from sweeper.speculation import NO_DRAFT, SpeculationConfig


@dataclass(frozen=True)
class Candidate:
    """A config to launch: the first request that leads to ``effective``, and what SGLang changes in it."""

    requested: SpeculationConfig
    effective: SpeculationConfig
    overrides: tuple[Override, ...]


@dataclass(frozen=True)
class Merge:
    """A request that is not launched since another one runs as the same effective config."""

    requested: SpeculationConfig
    effective: SpeculationConfig
    rule: str


@dataclass(frozen=True)
class Rejection:
    """A request that SGLang would refuse or crash on."""

    requested: SpeculationConfig
    rule: str


@dataclass(frozen=True)
class Enumeration:
    """What became of every combination asked for: asked = candidates + merges + rejections."""

    asked: int
    candidates: tuple[Candidate, ...]
    merges: tuple[Merge, ...]
    rejections: tuple[Rejection, ...]


def enumerate_space(space: Space, context: Context = Context()) -> Enumeration:
    """All combinations of all grids, in the order of the file, each launched at most once."""
    candidates: dict[SpeculationConfig, Candidate] = {}
    merges: list[Merge] = []
    rejections: list[Rejection] = []
    asked = 0
    for requested in (config for grid in space.grids for config in _combinations(grid, space)):
        asked += 1
        try:
            resolution = effective(requested, context)
        except InvalidSpeculationError as error:
            rejections.append(Rejection(requested, error.rule))
            continue
        if resolution.effective in candidates:
            rules = [override.rule for override in resolution.overrides] or ["asked for more than once"]
            merges.append(Merge(requested, resolution.effective, "; ".join(rules)))
        else:
            candidates[resolution.effective] = Candidate(
                requested, resolution.effective, resolution.overrides
            )
    return Enumeration(asked, tuple(candidates.values()), tuple(merges), tuple(rejections))


def _combinations(grid: Grid, space: Space) -> Iterator[SpeculationConfig]:
    for name in grid.algorithm:
        algorithm = ALGORITHMS[name]
        for draft, *values in product(_drafts(name, grid, space), *grid.values.values()):
            yield algorithm.request(str(draft), dict(zip(grid.values, values, strict=True)))


def _drafts(algorithm: str, grid: Grid, space: Space) -> list[str]:
    """Draft names for an algorithm; algorithms that need none use one only where the grid names it."""
    rules = ALGORITHMS[algorithm]
    if grid.drafts is not None and (rules.needs_draft or rules.draft_optional):
        return grid.drafts
    return list(space.drafts) if rules.needs_draft and space.drafts else [NO_DRAFT]
