"""Runs a search on a landscape instead of servers: a launch costs simulated time, and its result is looked up.

Everything between the sampler and the storage is what a sweep uses (ask, tell, attributes, skipping); only the servers
are not there. What a launch measures scatters about the landscape's value as single launches there did.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import optuna

from sweeper import records
from sweeper.analysis.intervals import LogEstimate
from sweeper.records import EndedBy, Failure, Interval, Load, LoadPoint, Quantiles, TrialRecord
from sweeper.search.candidates import CandidateSampler
from sweeper.search.landscape import Entry, Landscape, Point
from sweeper.server.failures import ADVICE
from sweeper.speculation import SpeculationConfig
from sweeper.storage.stored_trial import Speedups, config_of
from sweeper.study.ending import end_trial
from sweeper.study.skipping import pointless

NO_TIMES = Quantiles(0.0, 0.0, 0.0, 0.0)
FREEDOM = 20.0

MakeSampler = Callable[[Landscape, Sequence[Load], int], CandidateSampler]


@dataclass(frozen=True)
class Rules:
    """How a search is replayed: ``actors`` launch at the same time, at most ``launches`` in all.

    ``stop_near_best``: no further launches once one of them was within this share of the best; None: to the end.
    ``obey``: none either where the sampler has enough.
    """

    seed: int = 0
    actors: int = 1
    launches: int = 60
    stop_near_best: float | None = None
    obey: bool = False


@dataclass(frozen=True)
class Launch:
    """``speedup`` is the true one, over the objective loads; 0 for a config that failed."""

    config: SpeculationConfig
    finished_s: float
    speedup: float


@dataclass(frozen=True)
class Replay:
    """The launches in the order in which they were made, and the best true speedup that there is."""

    launches: tuple[Launch, ...]
    best: float
    study: optuna.Study

    def until_near_best(self, share: float = 0.02) -> int | None:
        """Launches up to the first one within ``share`` of the best; None if there was none."""
        near = (i for i, launch in enumerate(self.launches, 1) if launch.speedup >= self.best * (1 - share))
        return next(near, None)

    def seconds_until_near_best(self, share: float = 0.02) -> float | None:
        """Simulated time until the first such launch had been measured."""
        near = [x.finished_s for x in self.launches if x.speedup >= self.best * (1 - share)]
        return min(near, default=None)

    def regret(self, launches: int) -> float:
        """How far the best of the first ``launches`` is behind the best that there is, as a share of it."""
        best = max((launch.speedup for launch in self.launches[:launches]), default=0.0)
        return 1 - best / self.best


def true_speedup(landscape: Landscape, entry: Entry, loads: Sequence[Load]) -> float:
    """Geometric mean over ``loads``."""
    if entry.failure:
        return 0.0
    return math.exp(sum(math.log(landscape.speedup(entry, load)) for load in loads) / len(loads))


def replay(landscape: Landscape, loads: Sequence[Load], make: MakeSampler, rules: Rules = Rules()) -> Replay:
    """One search, from its first launch to the end that ``rules`` set."""
    entries = {entry.config: entry for entry in landscape.entries}
    truth = {config: true_speedup(landscape, entry, loads) for config, entry in entries.items()}
    best = max(truth.values())
    good = best * (1 - rules.stop_near_best) if rules.stop_near_best is not None else math.inf
    sampler = make(landscape, loads, rules.seed)
    study = optuna.create_study(sampler=sampler, direction="maximize")
    noise = np.random.default_rng(rules.seed)
    order: dict[int, Launch] = {}
    running: list[tuple[float, int, optuna.Trial]] = []
    now, found = 0.0, False
    while True:
        while not found and len(running) < rules.actors and len(order) < rules.launches:
            if not sampler.remaining(study) or (rules.obey and sampler.enough(study)):
                break
            trial = study.ask(sampler.space)
            config = config_of(study.get_trials(deepcopy=False)[trial.number])
            entry = entries[config]
            finished = now + entry.start_s + (0.0 if entry.failure else entry.measure_s)
            order[trial.number] = Launch(config, finished, truth[config])
            heapq.heappush(running, (finished, trial.number, trial))
        if not running:
            return Replay(tuple(order[number] for number in sorted(order)), best, study)
        now, number, trial = heapq.heappop(running)
        entry = entries[order[number].config]
        record, speedups = measured(landscape, entry, noise)
        end_trial(study, trial, record, speedups, loads)
        found = found or order[number].speedup >= good
        if record.failure:
            untried = [candidate.effective for candidate in sampler.remaining(study)]
            sampler.skipped |= pointless(untried, [(number, record)])


def measured(landscape: Landscape, entry: Entry, noise: np.random.Generator) -> tuple[TrialRecord, Speedups]:
    """What one launch of a config would have said."""
    record = TrialRecord(entry.config, entry.config, records.TrialState.COMPLETE, start_s=entry.start_s)
    if entry.failure:
        failure = Failure(entry.failure, "as in the landscape", blames=ADVICE[entry.failure].blames)
        return TrialRecord(entry.config, entry.config, records.TrialState.FAILED, failure=failure), {}
    speedups = {}
    points = []
    for name, point in entry.points.items():
        load = Load.parse(name)
        luck = float(noise.normal())
        rate = point.output_tok_s * math.exp(luck * point.scatter)
        speedups[load] = LogEstimate(
            rate / landscape.baseline[name].output_tok_s, max(point.scatter, 1e-3), FREEDOM
        )
        points.append(_load_point(load, point, rate))
    return replace(record, load_points=tuple(points), measure_s=entry.measure_s), speedups


def _load_point(load: Load, point: Point, rate: float) -> LoadPoint:
    length = point.accept_length
    return LoadPoint(
        load=load,
        requests=sum(point.histogram),
        output_tok_s=Interval(rate, rate * math.exp(-2 * point.scatter), rate * math.exp(2 * point.scatter)),
        plain_tok_s=rate,
        window_s=0.0,
        accept_length=Interval(length, length * 0.99, length * 1.01),
        histogram=point.histogram,
        step_time_s=point.step_time_s,
        ttft_s=NO_TIMES,
        tpot_s=NO_TIMES,
        e2e_s=NO_TIMES,
        ended_by=EndedBy.REQUESTS,
        drift=Interval(1.0, 1.0, 1.0),
        unstable=False,
    )


def in_the_order_of_the_script(landscape: Landscape) -> list[SpeculationConfig]:
    """How SGLang's scripts/playground/bench_speculative.py goes through a space: draft by draft, then ascending in
    steps, topk and draft tokens."""
    drafts = list(dict.fromkeys((e.algorithm, e.draft) for e in landscape.entries))
    return sorted(
        (e.config for e in landscape.entries),
        key=lambda c: (drafts.index((c.algorithm, c.draft)), c.num_steps, c.topk, c.num_draft_tokens),
    )
