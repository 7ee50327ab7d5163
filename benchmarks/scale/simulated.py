"""Servers whose trials take minutes of a simulated clock, behind the very interface that real ones have.

The clock also runs while the driver computes, by the seconds of CPU that it uses: a driver that is too slow leaves
servers idle here as it would there. What other processes use, and what the disk takes, is not in it.
"""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sweeper.records import (
    EndedBy,
    Hardware,
    Interval,
    Load,
    LoadPoint,
    OutputComparison,
    Quantiles,
    RequestRecord,
    TrialRecord,
    TrialResult,
    TrialState,
)
from sweeper.speculation import SpeculationConfig
from sweeper.study.surroundings import Glance
from sweeper.trial.order import TrialOrder

TRIAL_S = 180.0
SPREAD = 0.35
"""Of the log of a trial's seconds."""
REQUESTS = 32
TOKENS = 256
LOG = "".join(
    f"[2026-01-01 00:00:{i % 60:02}] Decode batch, #running-req: 4, #token: {i}\n" for i in range(800)
)
HARDWARE = Hardware("Simulated GPU", 1, 80.0, "1.0", "simulated")


@dataclass(frozen=True)
class Usage:
    """Server seconds of simulated time while there was still work for all."""

    busy_s: float
    idle_s: float

    @property
    def idle_share(self) -> float:
        return self.idle_s / (self.busy_s + self.idle_s) if self.busy_s else 0.0


@dataclass
class SimulatedServers:
    """``sweeper.study.surroundings.Servers``. ``trials``: how many to run before the idle time no longer counts."""

    count: int
    trials: int
    random: random.Random = field(default_factory=lambda: random.Random(1))

    def __post_init__(self) -> None:
        self._skipped_s = 0.0
        self._began = time.process_time()
        self._idle_since = {f"server-{i}": 0.0 for i in range(self.count)}
        self._busy: list[tuple[float, str, str, TrialOrder]] = []
        self._started = 0
        self._idle_s = self._busy_s = 0.0

    def now(self) -> float:
        """Simulated seconds since the sweep began."""
        return time.process_time() - self._began + self._skipped_s

    def usage(self) -> Usage:
        return Usage(self._busy_s, self._idle_s)

    def hardware(self, kind: str = "") -> Hardware:
        return HARDWARE

    def idle(self) -> list[str]:
        return list(self._idle_since)

    def size(self) -> int:
        return self.count

    def need(self, count: int) -> None: ...

    def dismiss(self, name: str) -> None: ...

    def release(self, name: str) -> None: ...

    def notices(self) -> Sequence[str]:
        return ()

    def interrupt(self) -> None: ...

    def glances(self) -> Mapping[str, Glance]:
        return {tag: Glance("measuring", name, 100.0, 60.0) for _, tag, name, _ in self._busy}

    def start(self, tag: str, order: TrialOrder, on: str | None = None) -> None:
        name = on or next(iter(self._idle_since))
        now = self.now()
        idle_s = now - self._idle_since.pop(name)
        seconds = self.random.lognormvariate(0, SPREAD) * TRIAL_S * (0.2 if order.short else 1)
        if tag.startswith("trial-"):
            self._started += 1
            if (
                self.count < self._started <= self.trials
            ):  # neither the first on a server, nor when work runs out
                self._idle_s += idle_s
                self._busy_s += seconds
        heapq.heappush(self._busy, (now + seconds, tag, name, order))

    def wait(self, timeout_s: float) -> list[tuple[str, TrialResult]]:
        """Results that are there within ``timeout_s``; the clock jumps to the first one, or on by that much."""
        first = self._busy[0][0] if self._busy else float("inf")
        self._skipped_s += max(0.0, min(first - self.now(), timeout_s))
        done = []
        while self._busy and self._busy[0][0] <= self.now():
            ended, tag, name, order = heapq.heappop(self._busy)
            self._idle_since[name] = ended
            done.append((tag, result_of(order, name)))
        return done


def accept_length(config: SpeculationConfig) -> float:
    """Rises concavely in the steps."""
    return 1 + sum(0.75**i for i in range(1, config.num_steps + 1)) if config.speculates else 1.0


def step_s(config: SpeculationConfig, load: Load) -> float:
    return 0.01 * (1 + 0.06 * config.num_steps + 0.004 * config.num_draft_tokens * (load.concurrency or 1))


def result_of(order: TrialOrder, server: str) -> TrialResult:
    config = order.candidate.effective
    points, requests = [], []
    for load in order.loads:
        length, tau = accept_length(config), step_s(config, load)
        rate = (load.concurrency or 1) * length / tau
        around = Interval(rate, rate * 0.97, rate * 1.03)
        steady, times = Interval(1.0, 0.98, 1.02), Quantiles(0.1, 0.1, 0.2, 0.3)
        points.append(
            LoadPoint(
                load, REQUESTS, around, rate, 30.0, Interval(length, length - 0.1, length + 0.1),
                (10,) * (config.num_steps + 1), tau, times, times, times, EndedBy.REQUESTS, steady, False,
            )
        )  # fmt: skip
        requests += [_request(f"p{i}", load, i, (length, tau)) for i in range(REQUESTS)]
    record = TrialRecord(
        order.candidate.requested,
        config,
        TrialState.COMPLETE,
        tuple(points),
        comparison=OutputComparison(16, 16),
        command=("python", "-m", "sglang.launch_server", *("--flag", "value") * 20),
        engine={f"setting_{i}": i for i in range(20)},
        server_version="0.5.23",
        hardware=HARDWARE,
        started_at="2026-01-01T00:00:00+00:00",
        start_s=60.0,
        measure_s=120.0,
    )
    return TrialResult(record, tuple(requests), {}, LOG, None, server)


def _request(prompt: str, load: Load, number: int, speed: tuple[float, float]) -> RequestRecord:
    """One of a closed loop: so many at a time, each after one that ended."""
    length, tau = speed
    rounds, streams = round(TOKENS / length), load.concurrency or 1
    sent = number // streams * (0.1 + tau * rounds) + number % streams * 1e-4
    arrivals = tuple(sent + 0.1 + tau * i for i in range(rounds))
    tokens = tuple(round(length) for _ in range(rounds))
    return RequestRecord(
        prompt, str(load), sent, arrivals[0], arrivals[-1], 100, sum(tokens), 0, "length", arrivals, tokens,
        rounds, sum(tokens) - rounds, None,
    )  # fmt: skip
