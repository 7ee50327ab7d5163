"""Real Ray, the real pool and the real driver; only the trials are pretended: the actors sleep as long as one takes."""

from __future__ import annotations

import os
import random
import time
from dataclasses import replace
from pathlib import Path

import ray

from actors import server_actor
from actors.pool import ServerPool
from actors.server_actor import ServerActor
from benchmarks.scale.replay import Replay, Watching, candidates, disk, plan_in
from benchmarks.scale.simulated import SPREAD, result_of
from sweeper.driver.driving import driving
from sweeper.records import TrialResult
from sweeper.study.surroundings import Surroundings
from sweeper.study.sweep import Sweep
from sweeper.trial.order import TrialOrder

TRIAL_S = "SCALE_TRIAL_S"
"""Environment variable of the actors: the median of a trial's seconds."""


class PretendingActor(ServerActor):
    """Everything that a server's actor is, but for the server."""

    def run_trial(self, tag: str, order: TrialOrder) -> TrialResult:
        began = time.monotonic()  # one clock for all processes of a machine
        self._set_phase("pretending")
        median = float(os.environ[TRIAL_S]) * (0.2 if order.short else 1)
        time.sleep(median * random.Random(tag).lognormvariate(0, SPREAD))
        result = result_of(order, "")
        engine = {"began": began, "ended": time.monotonic()}
        hardware = self._place.seat().hardware
        return replace(result, record=replace(result.record, hardware=hardware, engine=engine))


class Watched(ServerPool):
    """Notes when each actor was busy."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.busy: dict[str, list[tuple[float, float]]] = {}

    def wait(self, timeout_s: float) -> list[tuple[str, TrialResult]]:
        found = super().wait(timeout_s)
        for tag, result in found:
            times = result.record.engine
            if tag.startswith("trial-") and "began" in times:
                self.busy.setdefault(result.server, []).append((times["began"], times["ended"]))
        return found

    def idle_share(self) -> float:
        """Of the actors' time between their first trial and the start of the last one of all."""
        last = max(began for spans in self.busy.values() for began, _ in spans)
        busy = total = 0.0
        for spans in self.busy.values():
            first = min(began for began, _ in spans)
            if first < last:
                total += last - first
                busy += sum(min(ended, last) - began for began, ended in spans if began < last)
        return 1 - busy / total if total else 0.0


def measure(root: Path, actors: int, trials: int, trial_s: float) -> Replay:
    """Drive ``trials`` pretended trials on ``actors`` actors of a Ray of its own."""
    os.environ |= {TRIAL_S: str(trial_s), "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    server_actor.ServerActor = PretendingActor  # type: ignore[misc]
    plan = plan_in(root, trials, "random", "cpu")
    display = Watching(max(1, trials // 4))
    ray.init(address="local", num_cpus=actors, include_dashboard=False, log_to_driver=False)
    try:
        with (
            driving(plan.study, root / "runs" / "scale", print) as driver,
            Watched(plan) as pool,
        ):
            sweep = Sweep(plan, candidates(trials)[1], Surroundings(driver, pool, display))  # type: ignore[arg-type]
            display.look()
            sweep.drive()
            share = pool.idle_share()
    finally:
        ray.shutdown()
    return Replay(actors, f"{trial_s:g} s", tuple(display.seen), share, dict(disk(root / "runs" / "scale")))
