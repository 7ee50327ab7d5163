"""``python -m benchmarks.synthetic_landscapes FOLDER [--held-out] [--scatter 0.01]``: computed landscapes.

No server was measured for them: they are there to try searches on. ``--scatter``: of a launch's rate, relative. The
sampler's constants were set on SCENES; those HELD_OUT were made afterwards, on other machines, texts and drafts, and
nothing was changed for them.

They are computed from a process that shares no formula with the structural sampler's models, so that it is not tried
on its own assumptions:

* Text is a sequence of tokens whose difficulty drifts. Where a draft is i tokens ahead, the target's token has some
  rank among its guesses; whether one guess is right depends on the token more than on the depth. Decoding walks that
  text as a server would (p <- p + A[p]), with trees built as SGLang builds them: per step the best ``topk`` of their
  ``topk``² children go on, and the best n-1 nodes of all are verified.
* A verify round takes what a roofline says: reading the weights (for a mixture of experts, those that the tokens touch)
  or computing, whichever is longer, in whole tiles; every draft step is a small roofline of its own with a launch's
  overhead; prefills interrupt.
"""

from __future__ import annotations

import argparse
import heapq
from pathlib import Path

import numpy as np

from benchmarks.synthetic_scenes import HELD_OUT, SCENES, DraftQuality, Scene
from sweeper.analysis.intervals import Array
from sweeper.config import Space
from sweeper.records import FailureClass
from sweeper.search.landscape import Entry, Landscape, Point, write_landscape
from sweeper.space import enumerate_space
from sweeper.speculation import SpeculationConfig

POSITIONS = 6000
DEEPEST = 16
SHARES = (0.60, 0.16, 0.07, 0.045, 0.03, 0.02, 0.015, 0.01)
"""What a draft thinks of its first guesses, which is what the shape of a tree follows."""


def guesses(scene: Scene, quality: DraftQuality) -> Array:
    """Rank [positions, depth] of the target's token among a draft's guesses, from 1; 99 where it is not among them."""
    text = np.random.default_rng(scene.seed)  # the text is the same for every draft
    steps = text.normal(size=POSITIONS + DEEPEST)
    difficulty = np.empty_like(steps)
    difficulty[0] = steps[0]
    for t in range(1, len(steps)):
        difficulty[t] = scene.drift * difficulty[t - 1] + (1 - scene.drift**2) ** 0.5 * steps[t]
    luck = text.normal(size=POSITIONS + DEEPEST)
    own = np.random.default_rng([scene.seed, int(1000 * quality.level) % 2**31])
    ranks = np.empty((POSITIONS, DEEPEST), int)
    for i in range(DEEPEST):
        there = slice(i + 1, i + 1 + POSITIONS) if i + 1 + POSITIONS <= len(luck) else slice(i, i + POSITIONS)
        logit = quality.level - quality.decay * i - scene.spread * difficulty[there]
        right = 1 / (1 + np.exp(-logit))
        draw = 0.85 * luck[there] + 0.53 * own.normal(size=POSITIONS)
        u = 0.5 * (1 + np.vectorize(_erf)(draw / np.sqrt(2)))
        rest = (u - right) / (1 - right)
        tail = quality.second * 0.55 ** np.arange(7)
        ranks[:, i] = np.where(u < right, 1, 2 + np.searchsorted(np.cumsum(tail), np.clip(rest, 0, 1)))
        ranks[:, i][ranks[:, i] > 8] = 99
    return ranks


def _erf(x: float) -> float:
    from math import erf

    return erf(x)


def tree(steps: int, topk: int, tokens: int) -> set[tuple[int, ...]]:
    """The paths of guesses that a tree verifies."""
    frontier = [((rank,), SHARES[rank - 1]) for rank in range(1, topk + 1)]
    pool = list(frontier)
    for _ in range(steps - 1):
        children = [
            ((*path, rank), score * SHARES[rank - 1])
            for path, score in frontier
            for rank in range(1, topk + 1)
        ]
        pool += children
        frontier = heapq.nlargest(topk, children, key=lambda node: node[1])
    return {path for path, _ in heapq.nlargest(tokens - 1, pool, key=lambda node: node[1])}


def histogram(ranks: Array, paths: set[tuple[int, ...]]) -> tuple[int, ...]:
    """Verify rounds by accepted drafts, decoding the whole text."""
    deepest = max(len(path) for path in paths)
    counts = [0] * (deepest + 1)
    position = 0
    while position < POSITIONS:
        accepted = 0
        while accepted < deepest and tuple(ranks[position, : accepted + 1]) in paths:
            accepted += 1
        counts[accepted] += 1
        position += accepted + 1
    return tuple(counts)


def step_seconds(scene: Scene, config: SpeculationConfig, load: int) -> float:
    machine = scene.machine
    verify = machine.forward(load * config.num_draft_tokens)
    if config.algorithm == "NGRAM":
        return verify + machine.launch + 0.02 * machine.weights
    cost = scene.drafts[config.draft].cost
    later = (config.num_steps - 1) * machine.forward(load * config.topk, cost)
    draft = machine.forward(load * 2, cost) + later
    trees = machine.branch * config.topk * config.num_steps if config.topk > 1 else 0.0
    return verify + draft + trees


def point(scene: Scene, config: SpeculationConfig, load: int, counts: tuple[int, ...]) -> Point:
    rounds = sum(counts)
    length = 1.0 if not counts else sum((i + 1) * count for i, count in enumerate(counts)) / rounds
    if counts:
        step = step_seconds(scene, config, load)
    else:
        step = scene.machine.forward(load)
    rate = load * length / (step + length * scene.machine.prefill * load**0.5)
    return Point(
        output_tok_s=round(rate, 3),
        half_width=0.0,
        scatter=0.0,
        accept_length=round(length, 5),
        step_time_s=round(step, 7),
        histogram=counts,
    )


def landscape(scene: Scene, scatter: float) -> Landscape:
    space = Space.model_validate(
        {"drafts": {name: {"path": f"drafts/{name}"} for name in scene.drafts}, "grids": list(scene.grids)}
    )
    ranks = {name: guesses(scene, quality) for name, quality in scene.drafts.items()}
    ranks["none"] = guesses(scene, scene.ngram)
    entries = []
    for config in (c.effective for c in enumerate_space(space).candidates):
        cost = {"start_s": scene.start_s, "measure_s": 60.0 * len(scene.loads)}
        numbers = {
            "algorithm": config.algorithm,
            "draft": config.draft,
            "num_steps": config.num_steps,
            "topk": config.topk,
            "num_draft_tokens": config.num_draft_tokens,
            "options": config.options,
        }
        if max(scene.loads) * config.num_draft_tokens * config.topk**0.5 >= scene.out_of_memory:
            entries.append(Entry(**numbers, **cost, failure=FailureClass.OOM_RUNTIME))
            continue
        if config.algorithm == "NGRAM":
            paths = {(1,) * i for i in range(1, config.num_draft_tokens)}
        else:
            paths = tree(config.num_steps, config.topk, config.num_draft_tokens)
        counts = histogram(ranks[config.draft], paths)
        points = {f"c={load}": point(scene, config, load, counts) for load in scene.loads}
        entries.append(Entry(**numbers, **cost, points=points))
    nothing = SpeculationConfig("NONE", "none", 0, 0, 1)
    made = Landscape(
        name=scene.name,
        origin="synthetic",
        about=scene.about,
        hardware="computed, no hardware",
        baseline={f"c={load}": point(scene, nothing, load, ()) for load in scene.loads},
        entries=tuple(entries),
    )
    return made.scattering(scatter)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--scatter", type=float, default=0.01)
    asked = parser.parse_args()
    for scene in HELD_OUT if asked.held_out else SCENES:
        made = landscape(scene, asked.scatter)
        write_landscape(made, asked.folder / f"{scene.name}.json")
        for load in made.loads:
            ranked = sorted(made.entries, key=lambda e: -made.speedup(e, load))
            best = made.speedup(ranked[0], load)
            near = sum(made.speedup(e, load) > 0.98 * best for e in ranked)
            print(
                f"{scene.name} {load}: {len(ranked)} configs, {near} within 2 % of {ranked[0].config} {best:.2f}x"
            )


if __name__ == "__main__":
    main()
