"""What the launches for a landscape come to together. Pure functions.

Machines have moods: a launch in a slow quarter of an hour makes its config look bad. So all configs are launched once
before any is launched again, in another order each time, and after every few of them the baseline, whose own ups and
downs say how the machine felt. How much of them is mood is estimated (the share of the baselines' variance that single
launches do not explain), and that share is taken out.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from sweeper.acceptance import add_histograms
from sweeper.search.landscape import Entry, Point
from sweeper.search.passes import BASELINE_EVERY, Pass
from sweeper.speculation import NO_SPECULATION, SpeculationConfig

FEW = 3.0
"""Degrees of freedom that a scatter has at least: with none, nothing would ever be precise."""


@dataclass(frozen=True)
class Together:
    """A config's passes at one load: geometric mean of the rates, its relative half-width, one launch's scatter."""

    output_tok_s: float
    half_width: float
    scatter: float
    passes: int


def moods(passes: Iterable[Pass], load: str) -> dict[int, float]:
    """How much faster (ln) than usual the machine was, by block.

    That is how far its baselines deviate from all, shrunk by the share of their variance that single launches explain.
    """
    rates: dict[int, list[tuple[float, float]]] = {}
    for done in passes:
        if done.config == NO_SPECULATION and load in done.points:
            point = done.points[load]
            rates.setdefault(done.block, []).append((math.log(point.output_tok_s), point.half_width / 2))
    if len(rates) < 2:
        return {}
    means = {block: float(np.mean([rate for rate, _ in found])) for block, found in rates.items()}
    own = float(np.mean([error**2 for found in rates.values() for _, error in found]))
    centre = float(np.mean(list(means.values())))
    variance = float(np.var(list(means.values()), ddof=1))
    share = max(0.0, 1 - own / variance) if variance else 0.0
    return {block: share * (mean - centre) for block, mean in means.items()}


def together(passes: Sequence[Pass], load: str) -> dict[SpeculationConfig, Together]:
    """All configs at one load; those that were only ever seen failing are not there.

    One launch's scatter is estimated over all configs that were launched more than once; with fewer degrees of freedom
    than FEW, a launch's own interval counts.
    """
    mood = moods(passes, load)
    logs: dict[SpeculationConfig, list[tuple[float, float]]] = {}
    for done in passes:
        if load in done.points:
            point = done.points[load]
            corrected = math.log(point.output_tok_s) - mood.get(done.block, 0.0)
            logs.setdefault(done.config, []).append((corrected, point.half_width))
    freedom = sum(len(found) - 1 for found in logs.values())
    squares = sum(
        float(np.sum((np.array(values) - np.mean(values)) ** 2))
        for values in ([value for value, _ in found] for found in logs.values())
    )
    between = math.sqrt(squares / freedom) if freedom else 0.0
    reach = float(stdtrit(max(freedom, FEW), 0.975))
    result = {}
    for config, found in logs.items():
        own = float(np.mean([half for _, half in found]))
        half = max(reach * between, own) / math.sqrt(len(found))
        value = math.exp(float(np.mean([x for x, _ in found])))
        result[config] = Together(value, half, max(between, own / 2), len(found))
    return result


@dataclass(frozen=True)
class Round:
    """What is still to be launched before any config is launched again, in the order of this round.

    ``baseline``: the plain server comes first, unless a running server can go on with other weights and the plain one
    ``can_wait``.
    """

    configs: tuple[SpeculationConfig, ...]
    baseline: bool
    can_wait: bool = True

    def next(self, near: Container[SpeculationConfig] = ()) -> SpeculationConfig | None:
        """What comes next, what a running server is ``near`` to before all else; None where nothing is left."""
        close = next((config for config in self.configs if config in near), None)
        if close is not None and (self.can_wait or not self.baseline):
            return close
        return NO_SPECULATION if self.baseline else next(iter(self.configs), None)


def this_round(
    passes: Sequence[Pass],
    configs: Sequence[SpeculationConfig],
    running: Sequence[SpeculationConfig],
    target: float,
    loads: Sequence[str],
) -> Round:
    """The configs with the fewest launches of those that are not known within ``target`` at all loads.

    Each round has an order of its own; the baseline is due once in every BASELINE_EVERY launches.
    """
    known = [together(passes, load) for load in loads]
    failed = {done.config for done in passes if done.failure and done.config != NO_SPECULATION}
    counts = Counter([*running, *(done.config for done in passes)])

    def vague(config: SpeculationConfig) -> bool:
        return any(config not in rates or rates[config].half_width > target for rates in known)

    left = [config for config in configs if config not in failed and config not in running and vague(config)]
    fewest = min((counts[config] for config in left), default=0)
    order = list(configs)
    random.Random(fewest).shuffle(order)
    place = {config: i for i, config in enumerate(order)}
    configs_of_round = sorted((c for c in left if counts[c] == fewest), key=place.__getitem__)
    block, place_in_block = divmod(len(passes) + len(running), BASELINE_EVERY)
    seen = NO_SPECULATION in running or any(
        done.config == NO_SPECULATION and done.block == block for done in passes
    )
    can_wait = place_in_block < BASELINE_EVERY - 1
    return Round(tuple(configs_of_round), baseline=bool(left) and not seen, can_wait=can_wait)


def entry(
    config: SpeculationConfig, passes: Sequence[Pass], loads: Mapping[str, Together | None]
) -> Entry | None:
    """A landscape's entry from all passes of one config; None where it was not launched.

    What a launch costs is told by launches: by others', where its weights were always loaded into a running server.
    """
    own = [done for done in passes if done.config == config]
    fine = [done for done in own if not done.failure]
    if not own:
        return None
    used = fine or own
    others = [done for done in passes if done.launched and done.points and done.config != NO_SPECULATION]
    launches = [done for done in used if done.launched] or others or used
    return Entry(
        algorithm=config.algorithm,
        draft=config.draft,
        num_steps=config.num_steps,
        topk=config.topk,
        num_draft_tokens=config.num_draft_tokens,
        options=config.options,
        start_s=round(float(np.mean([done.start_s for done in launches])), 1),
        measure_s=round(float(np.mean([done.measure_s for done in used])), 1),
        points={load: point(load, fine, rate) for load, rate in loads.items() if rate is not None},
        failure=None if fine else own[-1].failure,
    )


def point(load: str, passes: Sequence[Pass], rate: Together) -> Point:
    """Accept lengths and histograms over all passes: with greedy decoding, they are the same prompts' each time."""
    points = [done.points[load] for done in passes if load in done.points]
    return Point(
        output_tok_s=round(rate.output_tok_s, 3),
        half_width=round(rate.half_width, 5),
        scatter=round(rate.scatter, 5),
        accept_length=round(max(1.0, float(np.mean([p.accept_length for p in points]))), 5),
        step_time_s=round(float(np.exp(np.mean([math.log(p.step_time_s) for p in points]))), 7),
        histogram=add_histograms(p.histogram for p in points),
        passes=rate.passes,
    )
