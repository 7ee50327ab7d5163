"""``python -m benchmarks.stop_rule FOLDER [--seeds N] [--scatter 0.01]``: the structural sampler stops; in time?

Replays it on the landscapes of a folder until it has enough, at every load at which some config pays. Prints launches,
by how much the config that it then holds for the best is behind the best there is, and the probability that it gave
for that being within 2 %. At the end: how often it was, beside the mean of these probabilities.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna

from sweeper.records import Load
from sweeper.search.contest import contested_loads
from sweeper.search.landscape import Landscape, read_landscapes
from sweeper.search.replay import Rules, replay, true_speedup
from sweeper.search.structural import StructuralSampler

NEAR = 0.02
GAIN = 0.01
MOST = 60


@dataclass(frozen=True)
class Stop:
    launches: int
    regret: float
    said: float


def searched(landscape: Landscape, load: Load, seed: int) -> Stop:
    """One search, until its sampler has enough."""
    sampler = StructuralSampler(landscape.candidates, [load], seed, GAIN)
    run = replay(landscape, [load], lambda *_: sampler, Rules(seed, launches=MOST, obey=True))
    found = sampler.prospect(run.study)
    speeds = {entry.config: true_speedup(landscape, entry, [load]) for entry in landscape.entries}
    chosen = 1.0 if found.best is None else speeds[found.best]
    return Stop(len(run.launches), 1 - chosen / max(1.0, *speeds.values()), found.near_best)


def row(landscape: Landscape, load: Load, stops: Sequence[Stop]) -> str:
    launches = [stop.launches for stop in stops]
    return (
        f"| {landscape.name} | {landscape.origin} | {load} | {len(landscape.entries)} "
        f"| {statistics.mean(launches):.1f} ({min(launches)} to {max(launches)}) "
        f"| {statistics.mean(stop.regret for stop in stops):.1%} | {max(stop.regret for stop in stops):.1%} "
        f"| {statistics.mean(stop.said for stop in stops):.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--scatter", type=float, help="of a launch's rate; default: as in the landscape")
    asked = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(
        "| landscape | origin | load | configs | launches | mean regret | largest | said to be within 2 % |"
    )
    print("|---|---|---|---|---|---|---|---|")
    every: list[Stop] = []
    for landscape in read_landscapes([asked.folder]):
        if asked.scatter is not None:
            landscape = landscape.scattering(asked.scatter)
        for load in contested_loads(landscape):
            stops = [searched(landscape, load, seed) for seed in range(asked.seeds)]
            every += stops
            print(row(landscape, load, stops), flush=True)
    within = statistics.mean(stop.regret <= NEAR for stop in every)
    said = statistics.mean(stop.said for stop in every)
    print(
        f"\n{len(every)} searches: within 2 % of the best in {within:.0%}, said with probability {said:.2f}"
    )


if __name__ == "__main__":
    main()
