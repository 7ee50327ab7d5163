"""``python -m benchmarks.interleaved_landscape FILE --out DIR [--only p100] [--minutes 30]``: for a moody machine.

A landscape of the configs of a study file, like `sweeper record`'s, but with all servers up at the same time: they are
stopped (SIGSTOP) but for the one that is measured, so that one visit takes seconds, a lap over all of them minutes, and
what the machine does meanwhile hits all alike. For shared cores whose speed drifts by a quarter within minutes; how far
that helps: docs/search.md. Needs about 0.9 GiB per server.

Every lap goes over all servers and loads in a new order, with other prompts. Each visit is a line of DIR/visits.jsonl;
running it again launches the servers anew and goes on. ln rate of a visit = its config's + the machine's mood then (an
Ornstein-Uhlenbeck process) + the prompts of that lap, for servers that speculate + that launch of the server + what is
left, and all but the first are random effects whose sizes are estimated (restricted maximum likelihood). How launches
differ shows from the second run on; the half-widths of a single one are that launch's. DIR/landscape.json holds the
rates of all configs that run (one that does not ends the recording); half-widths are those against the mean of all
configs, since only comparisons count, and ``scatter`` is that of visits, mood and launch included.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize

from sweeper.analysis.intervals import Array
from sweeper.config import StudyConfig
from sweeper.load.generator import LoadGenerator, Order
from sweeper.load.statistics import Expectation, LoadData, load_point
from sweeper.node.hardware import visible_hardware
from sweeper.records import Load
from sweeper.search.landscape import Landscape, write_landscape
from sweeper.search.passes import UNKNOWN, Pass, PassPoint
from sweeper.search.pooling import Together, entry, point
from sweeper.server.command import launch_command, launch_environment
from sweeper.server.prepare import look_up
from sweeper.server.process import ServerProcess, fresh_address
from sweeper.space import enumerate_space
from sweeper.speculation import NO_SPECULATION, SpeculationConfig
from sweeper.study_file.reading import load_study_file
from sweeper.workload.prompts import Prompt, read_conversations

REQUESTS = {1: 4, 4: 16, 16: 48}
"""Of one visit, by concurrency; else four times the concurrency."""


@dataclass(frozen=True)
class Visit:
    """One load on one server. ``at_s``: Unix time of its middle; ``launch``: which start of all servers."""

    config: str
    load: str
    launch: int
    lap: int
    at_s: float
    seconds: float
    rate: float
    accept_length: float
    step_time_s: float
    histogram: tuple[int, ...]
    start_s: float


class Resident:
    """A server that sleeps unless it is measured."""

    def __init__(self, server: ServerProcess, config: SpeculationConfig, start_s: float) -> None:
        self.server, self.config, self.start_s = server, config, start_s
        self.sleep()

    def sleep(self) -> None:
        os.killpg(self.server.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.killpg(self.server.pid, signal.SIGCONT)

    def visit(
        self, study: StudyConfig, load: Load, prompts: Sequence[Prompt], launch: int, lap: int
    ) -> Visit:
        generator = LoadGenerator(self.server.address, study.workload, study.measurement)
        self.wake()
        try:
            generator.run(Order(prompts[:1], Load(1), max_new_tokens=8))
            self.server.client.flush_cache()
            begun = time.time()
            requests = generator.run(Order(prompts, load)).requests
            seconds = time.time() - begun
        finally:
            self.sleep()
        speculates = self.config != NO_SPECULATION
        most = self.config.num_draft_tokens if speculates else 1
        point = load_point(LoadData(load, requests), Expectation(speculates, most_per_step=most))
        return Visit(
            str(self.config),
            str(load),
            launch,
            lap,
            begun + seconds / 2,
            seconds,
            point.output_tok_s.value,
            point.accept_length.value,
            point.step_time_s,
            point.histogram,
            self.start_s,
        )


def record(study: StudyConfig, configs: Sequence[SpeculationConfig], path: Path, minutes: float) -> None:
    """Launch all servers, and go over them lap by lap."""
    setup = look_up(study)
    earlier = read(path)
    launch = max((visit.launch for visit in earlier), default=-1) + 1
    first = max((visit.lap for visit in earlier), default=-1) + 1
    prompts = [Prompt(item.id, item.turns[0][0].content) for item in read_conversations(study)]
    loads = study.workload.loads
    with ExitStack() as stack:
        servers: list[Resident] = []
        for config in (NO_SPECULATION, *configs):
            address = stack.enter_context(fresh_address())
            log = path.parent / "logs" / f"{launch}-{len(servers)}.log"
            begun = time.monotonic()
            command = launch_command(study, config, setup, address)
            server = stack.enter_context(
                ServerProcess(command, launch_environment(study), address, log, owns_gpus=False)
            )
            server.wait_until_ready(300)
            servers.append(Resident(server, config, time.monotonic() - begun))
            stack.callback(servers[-1].wake)  # before it is told to end
            print(f"{config}: up after {servers[-1].start_s:.0f} s", flush=True)
        until = time.monotonic() + 60 * minutes
        for lap in range(first, 10**6):
            order = [(server, load) for server in servers for load in loads]
            random.Random(lap).shuffle(order)
            begun = time.monotonic()
            for server, load in order:
                if time.monotonic() > until:
                    return
                count = REQUESTS.get(load.concurrency, 4 * load.concurrency)
                chosen = [prompts[(lap * count + i) % len(prompts)] for i in range(count)]
                visit = server.visit(study, load, chosen, launch, lap)
                with path.open("a") as file:
                    file.write(json.dumps(asdict(visit)) + "\n")
            print(f"lap {lap}: {time.monotonic() - begun:.0f} s", flush=True)


def read(path: Path) -> list[Visit]:
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return [Visit(**{**row, "histogram": tuple(row["histogram"])}) for row in rows]


@dataclass(frozen=True)
class Pooled:
    """ln rate of every (config, load), the deviation of its difference from the mean of that load, and the effects.

    ``effects``: standard deviations of mood, prompts, launch and rest, and the mood's time in seconds.
    """

    value: dict[tuple[str, str], float]
    error: dict[tuple[str, str], float]
    effects: dict[str, float]


def pooled(visits: Sequence[Visit]) -> Pooled:
    """Generalised least squares, with the random effects' sizes by restricted maximum likelihood."""
    keys = sorted({(v.config, v.load) for v in visits})
    design = np.array([[key == (v.config, v.load) for key in keys] for v in visits], float)
    y = np.log([v.rate for v in visits])
    at = np.array([v.at_s for v in visits])
    apart = np.abs(at[:, None] - at[None, :])
    speculates = np.array([v.config != str(NO_SPECULATION) for v in visits], float)
    laps = _same([(v.lap, v.load) for v in visits]) * np.outer(speculates, speculates)
    launches = _same([(v.launch, v.config) for v in visits])
    several = len({v.launch for v in visits}) > 1

    def covariance(parameters: Array) -> Array:
        mood, seconds, prompts, launch, rest = np.exp(parameters)
        found: Array = (
            mood**2 * np.exp(-apart / seconds) + prompts**2 * laps + np.diag(np.full(len(y), rest**2))
        )
        return found + (launch**2 * launches if several else 0.0)

    def loss(parameters: Array) -> float:
        factor = cho_factor(covariance(parameters), lower=True)
        information = design.T @ cho_solve(factor, design)
        beta = np.linalg.solve(information, design.T @ cho_solve(factor, y))
        residual = y - design @ beta
        determinant = 2 * np.log(np.diag(factor[0])).sum() + np.linalg.slogdet(information)[1]
        return float(determinant + residual @ cho_solve(factor, residual)) / 2

    start = np.log([0.08, 40.0, 0.03, 0.01, 0.05])
    best = minimize(loss, start, method="L-BFGS-B", bounds=[(-9, 1), (0, 9), (-9, 0), (-9, 0), (-9, 0)])
    factor = cho_factor(covariance(best.x), lower=True)
    spread = np.linalg.inv(design.T @ cho_solve(factor, design))
    beta = spread @ (design.T @ cho_solve(factor, y))
    names = ("mood", "mood_s", "prompts", "launch", "rest")
    effects = dict(zip(names, map(float, np.exp(best.x)), strict=True))
    if not several:
        effects["launch"] = math.nan
    same_load = _same([load for _, load in keys])
    centred = np.eye(len(keys)) - same_load / same_load.sum(axis=1, keepdims=True)
    errors = np.sqrt(np.diag(centred @ spread @ centred.T))
    return Pooled(
        dict(zip(keys, map(float, beta), strict=True)),
        dict(zip(keys, map(float, errors), strict=True)),
        effects,
    )


def _same(labels: Sequence[object]) -> Array:
    numbers = np.unique([repr(label) for label in labels], return_inverse=True)[1]
    return np.asarray(numbers[:, None] == numbers[None, :], float)


def passes_of(visits: Sequence[Visit], configs: Sequence[SpeculationConfig]) -> list[Pass]:
    """A lap's visits to one server as one pass."""
    by_name = {str(config): config for config in configs}
    groups: dict[tuple[int, int, str], list[Visit]] = {}
    for visit in visits:
        groups.setdefault((visit.launch, visit.lap, visit.config), []).append(visit)
    return [
        Pass(
            number,
            by_name[name],
            own[0].start_s,
            sum(v.seconds for v in own),
            {v.load: PassPoint(v.rate, UNKNOWN, v.accept_length, v.step_time_s, v.histogram) for v in own},
        )
        for number, ((_, _, name), own) in enumerate(groups.items())
    ]


def landscape(study: StudyConfig, configs: Sequence[SpeculationConfig], visits: Sequence[Visit]) -> Landscape:
    """Of ``configs``, all of which and the plain server were visited at every load."""
    found = pooled(visits)
    passes = passes_of(visits, [NO_SPECULATION, *configs])
    effects = found.effects
    scatter = math.hypot(
        *(effects[name] for name in ("mood", "rest", "launch") if not math.isnan(effects[name]))
    )

    def rates(config: SpeculationConfig) -> dict[str, Together]:
        own = Counter(v.load for v in visits if v.config == str(config))
        return {
            load: Together(math.exp(found.value[key]), 1.96 * found.error[key], scatter, count)
            for load, count in own.items()
            for key in [(str(config), load)]
        }

    plain = [done for done in passes if done.config == NO_SPECULATION]
    loads = [str(load) for load in study.workload.loads]
    entries = [entry(config, passes, {load: rates(config)[load] for load in loads}) for config in configs]
    told = ", ".join(f"{name} {value:.3g}" for name, value in effects.items())
    return Landscape(
        name=study.study,
        origin="recorded",
        about=f"servers side by side, {len(visits)} visits; standard deviations of ln rate, seconds: {told}",
        hardware=visible_hardware(study.engine.device).key,
        server_version=look_up(study).version,
        baseline={load: point(load, plain, rates(NO_SPECULATION)[load]) for load in loads},
        entries=tuple(made for made in entries if made is not None),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", default="", help="configs that match this regular expression, like ' p100 '"
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="of measuring; 0: only compute")
    asked = parser.parse_args()
    study = load_study_file(asked.file)
    configs = [c.effective for c in enumerate_space(study.space).candidates]
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / "visits.jsonl"
    if asked.minutes:
        record(study, [c for c in configs if re.search(asked.only, str(c))], path, asked.minutes)
    loads = {str(load) for load in study.workload.loads}
    visits = read(path)
    whole = {v.config for v in visits if {w.load for w in visits if w.config == v.config} == loads}
    if str(NO_SPECULATION) not in whole:
        parser.error("the plain server was not measured at every load yet; give it more --minutes")
    made = landscape(study, [c for c in configs if str(c) in whole], [v for v in visits if v.config in whole])
    write_landscape(made, asked.out / "landscape.json")
    print(made.about)
    for load in made.baseline:
        best = max(made.entries, key=lambda e: e.points[load].output_tok_s)
        widths = [e.points[load].half_width for e in made.entries]
        print(
            f"{load}: {best.config} {made.speedup(best, Load.parse(load)):.3f}, half-widths {min(widths):.1%} to "
            f"{max(widths):.1%}, baseline {made.baseline[load].half_width:.1%}"
        )


if __name__ == "__main__":
    main()
