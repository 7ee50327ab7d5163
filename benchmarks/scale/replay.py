"""The real driver (trial loop, storage, run directory, sampler) against simulated servers and a simulated clock."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.scale.simulated import SimulatedServers
from sweeper.config import StudyConfig
from sweeper.driver.driving import driving
from sweeper.records import TrialRecord
from sweeper.server.setup import EngineSetup, shared_pins
from sweeper.space import Candidate
from sweeper.speculation import SpeculationConfig
from sweeper.storage.stored_trial import Speedups
from sweeper.study.surroundings import Surroundings, Tally
from sweeper.study.sweep import Sweep
from sweeper.trial.order import TrialPlan
from sweeper.workload.prompts import plan_prompts, read_conversations

STEPS = 20


@dataclass(frozen=True)
class Stretch:
    """What the driver had used when so many trials were done: seconds of CPU, of time, and bytes of memory."""

    trials: int
    cpu_s: float
    wall_s: float
    memory: int


@dataclass(frozen=True)
class Replay:
    """``disk``: bytes by part of the run directory."""

    servers: int
    sampler: str
    stretches: tuple[Stretch, ...]
    idle_share: float
    disk: Mapping[str, int]

    @property
    def trials(self) -> int:
        return self.stretches[-1].trials

    def cpu_ms(self, first: int, last: int) -> float:
        """CPU milliseconds per trial between two stretches."""
        a, b = self.stretches[first], self.stretches[last]
        return (b.cpu_s - a.cpu_s) / (b.trials - a.trials) * 1000


@dataclass
class Watching:
    """A display that notes what the driver used."""

    every: int
    seen: list[Stretch] = field(default_factory=list)
    done: int = 0

    def finished(self, number: int, record: TrialRecord, speedups: Speedups) -> None:
        self.done += 1
        if self.done % self.every == 0:
            self.look()

    def look(self) -> None:
        process = psutil.Process()
        self.seen.append(Stretch(self.done, time.process_time(), time.monotonic(), process.memory_info().rss))

    def tick(self, tally: Tally, phases: Mapping[str, str]) -> None: ...

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def candidates(count: int) -> tuple[dict[str, str], list[Candidate]]:
    """Chains of every length for as many drafts as are needed: drafts by name, and the configs."""
    drafts = [f"step{i:05}" for i in range(-(-count // STEPS))]
    configs = [SpeculationConfig("EAGLE3", d, s, 1, s + 1) for d in drafts for s in range(1, STEPS + 1)]
    return {d: f"/drafts/{d}" for d in drafts}, [Candidate(c, c, ()) for c in configs[:count]]


def study_in(root: Path, drafts: Mapping[str, str], sampler: str, device: str) -> StudyConfig:
    (root / "target").mkdir()
    (root / "target" / "config.json").write_text("{}")
    rows = [{"id": f"p{i}", "prompt": f"prompt number {i}"} for i in range(160)]
    (root / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return StudyConfig.model_validate(
        {
            "study": "scale",
            "engine": {"model": str(root / "target"), "device": device},
            "space": {
                "drafts": {name: {"path": path} for name, path in drafts.items()},
                "grids": [{"algorithm": "EAGLE3", "num_steps": {"min": 1, "max": STEPS}, "topk": 1}],
            },
            "workload": {
                "prompts": str(root / "prompts.jsonl"),
                "concurrency": [1, 16],
                "max_new_tokens": 256,
            },
            "search": {"sampler": sampler},
            "confirmation": {"repeats": 0},
            "baseline": {"cache_dir": str(root / "baselines"), "tolerance": 0.9},
            "runs_dir": str(root / "runs"),
        }
    )


def plan_in(root: Path, trials: int, sampler: str, device: str) -> TrialPlan:
    """The plan of a study with so many candidates, under an empty directory."""
    study = study_in(root, candidates(trials)[0], sampler, device)
    setup = EngineSetup("0.5.23", pins=shared_pins(study, "0.5.23"))
    return TrialPlan(study, setup, plan_prompts(study, read_conversations(study)))


def replay(root: Path, servers: int, trials: int, sampler: str) -> Replay:
    """Drive ``trials`` trials to their end under ``root``, an empty directory."""
    plan = plan_in(root, trials, sampler, "cuda")
    space, run = candidates(trials)[1], root / "runs" / "scale"
    simulated, display = SimulatedServers(servers, trials), Watching(max(1, trials // 10))
    with driving(plan.study, run, print) as driver:
        sweep = Sweep(plan, space, Surroundings(driver, simulated, display))  # type: ignore[arg-type]
        display.look()
        sweep.drive()
    return Replay(servers, sampler, tuple(display.seen), simulated.usage().idle_share, dict(disk(run)))


def disk(run: Path) -> Iterable[tuple[str, int]]:
    """Bytes of the run directory's parts."""
    for part in sorted(run.iterdir()):
        files = [part] if part.is_file() else list(part.rglob("*"))
        yield part.name, sum(file.stat().st_size for file in files if file.is_file())
