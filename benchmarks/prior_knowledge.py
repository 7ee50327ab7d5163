"""``python -m benchmarks.prior_knowledge FOLDER [--seeds N]``: what right and wrong prior knowledge does to a search.

Replays the structural sampler on the landscapes of a folder with several drafts, at every load at which some config
pays: launches until one is within 2 % of the best, knowing nothing; the accept lengths as an acceptance map gives them;
the same with the drafts' names exchanged, the best with the worst; and costs as if speculation were free.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import optuna

from sweeper.records import Load
from sweeper.search.contest import contested_loads
from sweeper.search.hints import EARLIER_COST, FROM_MAP, MOST_FROM_MAP, NOTHING, Hint, Hints
from sweeper.search.landscape import Landscape, read_landscapes
from sweeper.search.replay import Rules, replay
from sweeper.search.structural import StructuralSampler
from sweeper.speculation import SpeculationConfig

MOST = 60
FREE = math.log(1.1)


def lengths_of(landscape: Landscape) -> dict[SpeculationConfig, float]:
    """ln A of what runs; greedy, so it is the same at every load."""
    return {
        entry.config: math.log(next(iter(entry.points.values())).accept_length)
        for entry in landscape.entries
        if entry.points
    }


def exchanged(lengths: Mapping[SpeculationConfig, float]) -> dict[SpeculationConfig, float]:
    """As if the drafts had each other's names: the best the worst's, and so on."""
    drafts = sorted(
        {config.draft for config in lengths},
        key=lambda draft: statistics.mean(value for c, value in lengths.items() if c.draft == draft),
    )
    other = dict(zip(drafts, reversed(drafts), strict=True))
    theirs = ((config, replace(config, draft=other[config.draft])) for config in lengths)
    return {config: lengths[their] for config, their in theirs if their in lengths}


def knowledge(landscape: Landscape) -> Iterator[tuple[str, Hints]]:
    lengths = lengths_of(landscape)
    yield "none", NOTHING
    yield "map", _from_map(lengths)
    if len({config.draft for config in lengths}) > 1 and exchanged(lengths):
        yield "map, drafts exchanged", _from_map(exchanged(lengths))
    yield "free", Hints(cost=tuple(Hint(config, FREE, EARLIER_COST) for config in _thinned(lengths)))


def _from_map(lengths: Mapping[SpeculationConfig, float]) -> Hints:
    return Hints(tuple(Hint(config, lengths[config], FROM_MAP) for config in _thinned(lengths)))


def _thinned(lengths: Mapping[SpeculationConfig, float]) -> list[SpeculationConfig]:
    return list(lengths)[:: -(-len(lengths) // MOST_FROM_MAP)]


def launches(landscape: Landscape, load: Load, hints: Hints, seed: int) -> int:
    sampler = StructuralSampler(landscape.candidates, [load], seed)
    sampler.hints = hints
    run = replay(landscape, [load], lambda *_: sampler, Rules(seed, launches=MOST, stop_near_best=0.02))
    return run.until_near_best() or MOST + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(
        "| landscape | origin | load | known beforehand | launches, median (range) |\n|---|---|---|---|---|"
    )
    for landscape in read_landscapes([asked.folder]):
        for load in contested_loads(landscape):
            for name, hints in knowledge(landscape):
                found = [launches(landscape, load, hints, seed) for seed in range(asked.seeds)]
                print(
                    f"| {landscape.name} | {landscape.origin} | {load} | {name} "
                    f"| {statistics.median(found):g} ({min(found)} to {max(found)}) |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
