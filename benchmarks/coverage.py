"""Do the stated 95 % intervals hold what they say, on a real server?

    python -m benchmarks.coverage [--config chain] [--concurrency 4] [--requests 24] [--repeats 40]

As a study does, visits the loads of the plain server in turns to learn how far single measurements are off here. Then
measures one config of the CPU test bed over and over, each time on other prompts and in a short window, and counts how
often the interval of a single measurement holds the mean of all of them. Then measures pairs on the same prompts and
counts how often two identical configs are called different (A/A). Exits 1 where the interval holds in fewer than 34 of
40, or where more than 1 pair in 20 is called different. Both counts are also given for the windows' own intervals,
which know nothing of the machine's longer moods.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.testbed_server import CONFIGS, Testbed
from sweeper.analysis.intervals import LogEstimate
from sweeper.breakeven import Arm, speedup
from sweeper.load.generator import LoadGenerator, Order
from sweeper.load.repeatability import repeatability
from sweeper.load.statistics import rate_estimate
from sweeper.load.window import stretches
from sweeper.records import UNKNOWN_REPEATABILITY, Load, Repeatability, RequestRecord
from sweeper.server.process import ServerProcess
from sweeper.workload.prompts import Prompt


class Measuring:
    """Sends decks to one server."""

    def __init__(self, testbed: Testbed, server: ServerProcess, load: Load) -> None:
        self.testbed, self.server, self.load = testbed, server, load
        study = testbed.study
        self.generator = LoadGenerator(server.address, study.workload, study.measurement)

    def requests(self, deck: Sequence[Prompt], load: Load | None = None) -> tuple[RequestRecord, ...]:
        self.server.client.flush_cache()
        run = self.generator.run(Order(deck, load or self.load))
        assert not any(r.error for r in run.requests)
        return run.requests

    def repeatability(self, prompts: Sequence[Prompt]) -> Repeatability:
        """From as many visits to each load as a baseline makes by default."""
        study, visits = (
            self.testbed.study,
            {load: list[RequestRecord]() for load in self.testbed.study.workload.loads},
        )
        for lap in range(study.baseline.laps):
            for load, found in visits.items():
                deck = prompts[: max(12, 3 * load.concurrency)]
                found += [replace(request, lap=lap) for request in self.requests(deck, load)]
        return repeatability(visits)


def decks(prompts: Sequence[Prompt], size: int, count: int) -> list[list[Prompt]]:
    """Random draws of ``size`` prompts, without repeats within one."""
    draw = np.random.default_rng(1)
    return [[prompts[i] for i in draw.choice(len(prompts), size, replace=False)] for _ in range(count)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", choices=CONFIGS, default="chain")
    parser.add_argument("--concurrency", type=int, default=4)
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--repeats", type=int, default=40)
    asked = parser.parse_args()
    testbed, load = Testbed(), Load(asked.concurrency)
    prompts = testbed.prompts()
    with testbed.serving(CONFIGS["plain"]) as server:
        measuring = Measuring(testbed, server, load)
        measuring.requests(prompts[: asked.requests])
        repeats = measuring.repeatability(prompts)
    with testbed.serving(CONFIGS[asked.config]) as server:
        measuring = Measuring(testbed, server, load)
        chosen = decks(prompts, asked.requests, asked.repeats)
        measuring.requests(chosen[0])
        began = time.monotonic()
        runs = [measuring.requests(deck) for deck in chosen]
        seconds = (time.monotonic() - began) / len(runs)
        second = [measuring.requests(deck) for deck in chosen[: asked.repeats // 2] for _ in (0, 1)]
    pairs = [(Arm(load, a), Arm(load, b)) for a, b in zip(second[::2], second[1::2], strict=True)]
    print(
        f"{asked.config} at {load.in_words()}, {asked.requests} requests ({seconds:.1f} s) a measurement; "
        f"visits to the plain server's loads differ by {repeats.closed[0]:.1%} beyond their own intervals"
    )
    judge("windows alone", runs, pairs, UNKNOWN_REPEATABILITY)
    return 0 if judge("as a study says", runs, pairs, repeats) else 1


def judge(
    name: str,
    runs: Sequence[Sequence[RequestRecord]],
    pairs: Sequence[tuple[Arm, Arm]],
    repeats: Repeatability,
) -> bool:
    """Print what was counted; whether it is as good as 95 % intervals must be."""
    load = pairs[0][0].load
    off = LogEstimate(1.0, *repeats.at(load))
    estimates = [rate_estimate(stretches(run, load), off) for run in runs]
    truth = len(estimates) / sum(1 / e.value for e in estimates)  # as one long measurement would give
    held = sum(e.interval.low <= truth <= e.interval.high for e in estimates)
    speedups = [speedup(a, b, repeats).interval for a, b in pairs]
    different = sum(found.low > 1 or found.high < 1 for found in speedups)
    print(
        f"{name}:\n"
        f"  rate {truth:.1f} tok/s; single measurements scatter by {np.std([e.value for e in estimates]) / truth:.1%}, "
        f"their half-widths are {np.median([e.relative_half_width for e in estimates]):.1%}\n"
        f"  the interval holds the mean in {held} of {len(estimates)} measurements\n"
        f"  identical configs are called different in {different} of {len(pairs)} pairs "
        f"(half-width of the speedup {np.median([s.high / s.value - 1 for s in speedups]):.1%})"
    )
    return held >= 0.85 * len(estimates) and different <= 0.05 * len(pairs)


if __name__ == "__main__":
    sys.exit(main())
