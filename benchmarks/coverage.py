"""Do the stated 95 % intervals hold what they say, on a real server?

    python -m benchmarks.coverage [--config chain] [--concurrency 4] [--requests 24] [--repeats 40]

Measures one config of the CPU test bed over and over, each time on other prompts and in a short window, and counts how
often the interval of a single measurement holds the mean of all of them. Then measures pairs on the same prompts and
counts how often two identical configs are called different (A/A). Exits 1 where the interval holds in fewer than 34 of
40, or where more than 1 pair in 20 is called different.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.testbed_server import CONFIGS, Testbed
from sweeper.breakeven import Arm, speedup
from sweeper.load.generator import LoadGenerator, Order
from sweeper.load.statistics import rate_estimate
from sweeper.load.window import steady_window
from sweeper.records import Load, RequestRecord
from sweeper.server.process import ServerProcess
from sweeper.workload.prompts import Prompt


class Measuring:
    """Sends decks to one server."""

    def __init__(self, testbed: Testbed, server: ServerProcess, load: Load) -> None:
        self.server, self.load = server, load
        study = testbed.study
        self.generator = LoadGenerator(server.address, study.workload, study.measurement)

    def requests(self, deck: Sequence[Prompt]) -> tuple[RequestRecord, ...]:
        self.server.client.flush_cache()
        run = self.generator.run(Order(deck, self.load))
        assert not any(r.error for r in run.requests)
        return run.requests


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
    with testbed.serving(CONFIGS[asked.config]) as server:
        measuring = Measuring(testbed, server, load)
        chosen = decks(testbed.prompts(), asked.requests, asked.repeats)
        measuring.requests(chosen[0])
        began = time.monotonic()
        runs = [measuring.requests(deck) for deck in chosen]
        seconds = (time.monotonic() - began) / len(runs)
        second = [measuring.requests(deck) for deck in chosen[: asked.repeats // 2] for _ in (0, 1)]
    estimates = [rate_estimate(run, steady_window(run, load)) for run in runs]
    truth = len(estimates) / sum(1 / e.value for e in estimates)  # as one long measurement would give
    held = sum(e.interval.low <= truth <= e.interval.high for e in estimates)
    pairs = [
        speedup(Arm(load, a), Arm(load, b)).interval for a, b in zip(second[::2], second[1::2], strict=True)
    ]
    different = sum(pair.low > 1 or pair.high < 1 for pair in pairs)
    print(
        f"{asked.config} at {load.in_words()}, {asked.requests} requests ({seconds:.1f} s) a measurement:\n"
        f"  rate {truth:.1f} tok/s; single measurements scatter by {np.std([e.value for e in estimates]) / truth:.1%}, "
        f"their half-widths are {np.median([e.relative_half_width for e in estimates]):.1%}\n"
        f"  the interval holds the mean in {held} of {len(estimates)} measurements\n"
        f"  identical configs are called different in {different} of {len(pairs)} pairs "
        f"(half-width of the speedup {np.median([p.high / p.value - 1 for p in pairs]):.1%})"
    )
    return 0 if held >= 0.85 * len(estimates) and different <= 0.05 * len(pairs) else 1


if __name__ == "__main__":
    sys.exit(main())
