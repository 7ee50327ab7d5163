"""``python -m benchmarks.map_picks LANDSCAPE MAP [--scatter 0.01]``: what a map and three launches find.

The map gives every config's accept length before any launch; three launches, chosen by the structural sampler, show
what a step costs. Which config does the model then hold for the fastest, whether or not it was launched, and how far is
that one behind the best of the landscape? Beside it the same without a map; above, how well the map ranks the
landscape's accept lengths (Spearman), and how well the landscape knows its own best.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import optuna
from scipy.stats import spearmanr

from sweeper.drafts.acceptance_map import AcceptanceMap
from sweeper.records import Load
from sweeper.search.contest import contested_loads
from sweeper.search.hints import NOTHING, Hints, from_map
from sweeper.search.landscape import Landscape, read_landscape
from sweeper.search.replay import Rules, replay, true_speedup
from sweeper.search.structural import StructuralSampler
from sweeper.speculation import SpeculationConfig


def ranked_alike(landscape: Landscape, known: AcceptanceMap, load: Load) -> tuple[float, int]:
    """Spearman's rank correlation of the map's accept lengths and the landscape's, and of how many configs."""
    lengths = {e.config: e.points[str(load)].accept_length for e in landscape.entries if not e.failure}
    mapped = {hint.config: hint.value for hint in from_map(known, list(lengths)).accept_length}
    both = [(mapped[config], length) for config, length in lengths.items() if config in mapped]
    return float(spearmanr(*np.array(both).T).statistic), len(both)


def pick(
    landscape: Landscape, load: Load, hints: Hints, launches: int, seed: int
) -> tuple[SpeculationConfig | None, float]:
    """The config that the model holds for the fastest (None: no speculation), and how far it is behind the best."""
    sampler = StructuralSampler(landscape.candidates, [load], seed)
    sampler.hints = hints
    run = replay(landscape, [load], lambda *_: sampler, Rules(seed, launches=launches))
    mean = sampler.model(sampler.evidence.read(run.study).outcomes).mean
    first = int(np.argmax(mean))
    chosen = sampler.configs[first] if mean[first] > 0 else None
    speeds = {entry.config: true_speedup(landscape, entry, [load]) for entry in landscape.entries}
    return chosen, 1 - (speeds[chosen] if chosen else 1.0) / max(1.0, *speeds.values())


def row(landscape: Landscape, load: Load, name: str, hints: Hints, launches: int, seeds: int) -> str:
    found = [pick(landscape, load, hints, launches, seed) for seed in range(seeds)]
    chosen = [str(config or "no speculation") for config, _ in found]
    regrets = [regret for _, regret in found]
    near = statistics.mean(regret <= 0.03 for regret in regrets)
    return (
        f"| {load} | {name} | {max(set(chosen), key=chosen.count)} ({chosen.count(max(set(chosen), key=chosen.count))}"
        f" of {seeds}) | {statistics.median(regrets):.1%} | {max(regrets):.1%} | {near:.0%} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("landscape", type=Path)
    parser.add_argument("map", type=Path)
    parser.add_argument("--launches", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--scatter", type=float, help="of a launch's rate; default: as in the landscape")
    asked = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    landscape, known = read_landscape(asked.landscape), AcceptanceMap.load(asked.map)
    if asked.scatter is not None:
        landscape = landscape.scattering(asked.scatter)
    from_files: Mapping[str, Hints] = {
        "map": from_map(known, [entry.config for entry in landscape.entries]),
        "none": NOTHING,
    }
    loads = contested_loads(landscape)
    for load in landscape.loads:
        rank, count = ranked_alike(landscape, known, load)
        best = max(landscape.entries, key=lambda e: true_speedup(landscape, e, [load]))
        about = f"{best.config} {true_speedup(landscape, best, [load]):.3f} ±{best.points[str(load)].half_width:.1%}"
        print(f"{load}: Spearman of accept lengths {rank:.4f} over {count} configs; the best is {about}")
    print(
        f"\n| load | known | picked after {asked.launches} launches | behind the best | most | within 3 % |"
    )
    print("|---|---|---|---|---|---|")
    for load in loads:
        for name, hints in from_files.items():
            print(row(landscape, load, name, hints, asked.launches, asked.seeds), flush=True)


if __name__ == "__main__":
    main()
