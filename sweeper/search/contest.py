"""Search methods against each other on the same landscapes: ``sweeper bench-search``."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from sweeper.config import Search
from sweeper.records import Load
from sweeper.search.candidates import CandidateSampler, GridCandidates
from sweeper.search.landscape import Landscape
from sweeper.search.replay import Rules, in_the_order_of_the_script, replay, true_speedup
from sweeper.search.samplers import make_sampler

METHODS = ("structural", "tpe", "gp", "random", "grid", "script")
DETERMINISTIC = ("grid", "script")
"""Their order does not depend on the seed."""


@dataclass(frozen=True)
class Duel:
    """One search to replay: a method on a landscape, to win at one load."""

    landscape: str
    load: str
    method: str
    actors: int
    seed: int


@dataclass(frozen=True)
class Score:
    """What it came to: launches and simulated seconds until one was within 2 % of the best config.

    None: not within ``budget`` launches. ``regret`` [launches made]: after each of them.
    """

    duel: Duel
    launches: int | None
    seconds: float | None
    budget: int
    regret: tuple[float, ...]
    choosing_s: float
    """CPU seconds of one choice, on average."""


def sampler_for(method: str, landscape: Landscape, loads: Sequence[Load], seed: int) -> CandidateSampler:
    """Raises SweeperError where a method's packages are not installed."""
    if method == "script":
        by_config = {c.effective: c for c in landscape.candidates}
        return GridCandidates([by_config[c] for c in in_the_order_of_the_script(landscape)], seed)
    return make_sampler(Search(sampler=method, seed=seed), landscape.candidates, loads)


def contested_loads(landscape: Landscape) -> list[Load]:
    """The loads at which some config pays: elsewhere the plain server wins without a launch."""
    return [
        load
        for load in landscape.loads
        if any(true_speedup(landscape, entry, [load]) > 1 for entry in landscape.entries)
    ]


def duels(
    landscapes: Sequence[Landscape], methods: Sequence[str], actors: Sequence[int], seeds: int
) -> list[Duel]:
    """Everything to replay; seed by seed, so that what is there after any time compares."""
    return [
        Duel(landscape.name, str(load), method, count, seed)
        for seed in range(seeds)
        for landscape in landscapes
        for load in contested_loads(landscape)
        for method in methods
        for count in actors
        if seed == 0 or method not in DETERMINISTIC
    ]


def fight(duel: Duel, landscape: Landscape, budget: int) -> Score:
    """Replay one search until it is within 2 % of the best, at most ``budget`` launches."""
    loads = [Load.parse(duel.load)]
    begun = time.process_time()
    rules = Rules(duel.seed, duel.actors, budget, stop_near_best=0.02)
    run = replay(landscape, loads, lambda land, at, seed: sampler_for(duel.method, land, at, seed), rules)
    spent = (time.process_time() - begun) / max(len(run.launches), 1)
    regret = tuple(round(run.regret(count), 5) for count in range(1, len(run.launches) + 1))
    return Score(duel, run.until_near_best(), run.seconds_until_near_best(), budget, regret, round(spent, 5))


class Scores:
    """Scores in a file, a line each, so that a contest goes on where it was stopped."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[Duel, Score]:
        found = {}
        lines = self.path.read_text("utf-8").splitlines() if self.path.exists() else []
        for line in lines:
            try:
                row = json.loads(line)
                duel = Duel(**row.pop("duel"))
                found[duel] = Score(duel, **{**row, "regret": tuple(row["regret"])})
            except (ValueError, TypeError, KeyError):
                continue  # the last line of one that was killed
        return found

    def add(self, score: Score) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(score)) + "\n")


@dataclass(frozen=True)
class Summary:
    """A method on a landscape at a load with so many actors: quantiles over the seeds.

    A search that did not come near the best counts as ``budget`` + 1 launches; ``missed`` says how many did not.
    """

    landscape: str
    load: str
    method: str
    actors: int
    seeds: int
    median: float
    p90: float
    missed: int
    hours: float | None
    choosing_s: float


def summaries(scores: Mapping[Duel, Score]) -> Iterator[Summary]:
    """In the order of the scores."""
    groups: dict[tuple[str, str, str, int], list[Score]] = {}
    for duel, score in scores.items():
        groups.setdefault((duel.landscape, duel.load, duel.method, duel.actors), []).append(score)
    for (landscape, load, method, actors), found in groups.items():
        launches = [score.launches or score.budget + 1 for score in found]
        hours = [score.seconds / 3600 for score in found if score.seconds is not None]
        yield Summary(
            landscape,
            load,
            method,
            actors,
            len(found),
            statistics.median(launches),
            float(np.quantile(launches, 0.9)),
            sum(score.launches is None for score in found),
            statistics.median(hours) if len(hours) > len(found) / 2 else None,
            statistics.mean(score.choosing_s for score in found),
        )


def regret_curve(scores: Sequence[Score], launches: int) -> list[float]:
    """Mean regret after 1, 2, ... launches; a search that ended near the best stays there."""
    return [
        statistics.mean(score.regret[min(count, len(score.regret)) - 1] for score in scores)
        for count in range(1, launches + 1)
    ]
