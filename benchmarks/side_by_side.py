"""Servers of all shapes up at the same time, each awake (SIGSTOP, SIGCONT) for a tenth of a second at a time."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import time
from bisect import bisect_right
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path

from sweeper.config import StudyConfig
from sweeper.load.generator import LoadGenerator, LoadRun, Order
from sweeper.load.statistics import (
    Expectation,
    FailedLoadError,
    LoadData,
    load_point,
    step_rate,
    tokens_per_step,
)
from sweeper.load.window import stretches
from sweeper.records import Load, RequestRecord
from sweeper.server.command import launch_command, launch_environment
from sweeper.server.hot_swap import SwapError, swap_draft
from sweeper.server.prepare import look_up
from sweeper.server.process import ServerProcess, fresh_address
from sweeper.speculation import NO_SPECULATION, SpeculationConfig
from sweeper.workload.prompts import Prompt, read_conversations

REQUESTS = {1: 6, 4: 16, 16: 48}
"""Of one visit, by concurrency; else four times the concurrency."""
SLICE_S = 0.1
"""The speed of shared cores changes at all time scales: that of seconds scatters as much as that of tenths."""


@dataclass(frozen=True)
class Visit:
    """One load on one server, in awake time; of the same ``group``: in turns of SLICE_S.

    ``step_rate``: steps per second over all requests in the steady window; ``at_s``: Unix time of the end; ``launch``:
    which start of all servers; ``block``: which prompts.
    """

    config: str
    load: str
    launch: int
    group: int
    lap: int
    block: int
    at_s: float
    seconds: float
    step_rate: float
    tokens_per_step: float
    accept_length: float
    step_time_s: float
    histogram: tuple[int, ...]
    start_s: float
    ttft_s: float = math.nan


class AwakeClock:
    """The time that a process was awake."""

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.ends: list[float] = []
        self.before: list[float] = []

    def note(self, start: float, end: float) -> None:
        """It was awake from ... to ... (seconds of the performance counter)."""
        earlier = self.before[-1] + self.ends[-1] - self.starts[-1] if self.starts else 0.0
        self.before.append(earlier)
        self.starts.append(start)
        self.ends.append(end)

    def at(self, time_s: float) -> float:
        """Seconds awake until a time."""
        place = bisect_right(self.starts, time_s) - 1
        return self.before[place] + min(time_s, self.ends[place]) - self.starts[place] if place >= 0 else 0.0

    def on_time(self, request: RequestRecord, origin: float) -> RequestRecord:
        """A request whose times count from ``origin``, in awake time."""

        def awake(seconds: float) -> float:
            return self.at(origin + seconds)

        first = request.first_token_s
        return replace(
            request,
            sent_s=awake(request.sent_s),
            first_token_s=None if first is None else awake(first),
            done_s=awake(request.done_s),
            arrival_s=tuple(map(awake, request.arrival_s)),
        )


class Resident:
    """A server that sleeps unless it is its turn."""

    def __init__(
        self,
        server: ServerProcess,
        study: StudyConfig,
        group: Sequence[SpeculationConfig],
        lap: int,
        start_s: float,
    ) -> None:
        self.server, self.group, self.study, self.start_s = server, group, study, start_s
        self.config, self.lap = group[turn(lap, len(group))], lap
        self.failed = False
        self.checksum = server.client.draft_checksum() if self.config.speculates else ""
        self.generator = LoadGenerator(server.address, study.workload, study.measurement)
        self.sleep()

    def sleep(self) -> None:
        os.killpg(self.server.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.killpg(self.server.pid, signal.SIGCONT)

    def prepare(self, prompts: Sequence[Prompt]) -> None:
        """Take the weights of this lap's draft, and warm up."""
        config = self.group[turn(self.lap, len(self.group))]
        self.wake()
        if config != self.config:
            swap_draft(self.server, self.study, config.draft)
            checksum = self.server.client.draft_checksum()
            if not checksum or checksum == self.checksum:
                raise SwapError(f"{config}: the server took the weights, and has the same as before")
            self.config, self.checksum = config, checksum
        self.generator.run(Order(prompts[:2], Load(1), max_new_tokens=8))
        self.sleep()

    @property
    def block(self) -> int:
        """Every draft gets the same prompts, before the next ones come."""
        return self.lap // len(self.study.space.drafts)

    def order(self, load: Load, prompts: Sequence[Prompt]) -> Order:
        requests = REQUESTS.get(load.concurrency, 4 * load.concurrency)
        first = self.block * requests
        return Order([prompts[(first + i) % len(prompts)] for i in range(requests)], load)

    def begin(self, order: Order) -> tuple[float, LoadRun]:
        origin = time.perf_counter()
        return origin, self.generator.run(order)


def side_by_side(
    residents: Sequence[Resident], load: Load, prompts: Sequence[Prompt], turns_of: tuple[int, int]
) -> list[Visit]:
    """One load on all servers, each of which is awake for SLICE_S at a time."""
    with ThreadPoolExecutor(len(residents)) as pool:
        runs = [(r, AwakeClock(), pool.submit(r.begin, r.order(load, prompts))) for r in residents]
        left = list(runs)
        while left:
            random.shuffle(left)
            for resident, clock, run in left:
                start = time.perf_counter()
                resident.wake()
                wait([run], SLICE_S)
                resident.sleep()
                clock.note(start, time.perf_counter())
            left = [item for item in left if not item[2].done()]
    visits = []
    for resident, clock, run in runs:
        try:
            visits.append(_visit(resident, clock, *run.result(), *turns_of))
        except FailedLoadError as error:
            print(f"{resident.config}: {error}", flush=True)
            resident.failed = True
    return visits


def _visit(
    resident: Resident, clock: AwakeClock, origin: float, run: LoadRun, launch: int, group: int
) -> Visit:
    config = resident.config
    expected = Expectation(
        config.speculates, most_per_step=config.num_draft_tokens if config.speculates else 1
    )
    awake = [clock.on_time(request, origin) for request in run.requests]
    point = load_point(LoadData(run.load, awake), expected)
    return Visit(
        str(config),
        str(run.load),
        launch,
        group,
        resident.lap,
        resident.block,
        time.time(),
        max(request.done_s for request in awake),
        step_rate(stretches(awake, run.load)).value,
        tokens_per_step(awake).value,
        point.accept_length.value,
        point.step_time_s,
        point.histogram,
        resident.start_s,
        point.ttft_s.mean,
    )


def by_shape(configs: Sequence[SpeculationConfig]) -> list[list[SpeculationConfig]]:
    """The configs of each shape, one for every draft: they take turns on one server."""
    shapes: dict[SpeculationConfig, list[SpeculationConfig]] = {}
    for config in configs:
        shapes.setdefault(replace(config, draft=""), []).append(config)
    if len({tuple(config.draft for config in group) for group in shapes.values()}) > 1:
        raise SystemExit("every shape must be there for every draft")
    return list(shapes.values())


def turn(lap: int, drafts: int) -> int:
    """Which draft: there and back again, so that every other time no weights need be loaded."""
    block, place = divmod(lap, drafts)
    return drafts - 1 - place if block % 2 else place


def record(
    study: StudyConfig, configs: Sequence[SpeculationConfig], path: Path, laps: int, servers: int
) -> None:
    """Launch the shapes that were visited least, and go over them lap by lap, in each with another draft."""
    setup = look_up(study)
    earlier = read(path)
    launch = max((visit.launch for visit in earlier), default=-1) + 1
    number = max((visit.group for visit in earlier), default=-1) + 1
    prompts = [Prompt(item.id, item.turns[0][0].content) for item in read_conversations(study)]

    def laps_of(group: Sequence[SpeculationConfig]) -> int:
        """Those that were done at every load."""
        done = {(visit.lap, visit.load) for visit in earlier if visit.config in map(str, group)}
        return next(
            lap for lap in count() if any((lap, str(load)) not in done for load in study.workload.loads)
        )

    groups = by_shape(configs)
    random.Random(launch).shuffle(groups)
    groups = sorted(groups, key=laps_of)[:servers]
    with ExitStack() as stack:
        residents: list[Resident] = []
        for group in ([NO_SPECULATION], *groups):
            address = stack.enter_context(fresh_address())
            log = path.parent / "logs" / f"{launch}-{len(residents)}.log"
            begun, lap = time.monotonic(), laps_of(group)
            config = group[turn(lap, len(group))]
            command = launch_command(study, config, setup, address)
            server = stack.enter_context(
                ServerProcess(command, launch_environment(study), address, log, owns_gpus=False)
            )
            server.wait_until_ready(300)
            residents.append(Resident(server, study, group, lap, time.monotonic() - begun))
            stack.callback(residents[-1].wake)  # before it is told to end
            print(f"{config}: up after {residents[-1].start_s:.0f} s", flush=True)
        for lap in range(laps):
            begun = time.monotonic()
            for resident in residents:
                resident.prepare(prompts)
            for load in random.Random(number).sample(study.workload.loads, len(study.workload.loads)):
                visits = side_by_side(residents, load, prompts, (launch, number))
                residents = [resident for resident in residents if not resident.failed]
                number += 1
                with path.open("a") as file:
                    file.writelines(json.dumps(asdict(visit)) + "\n" for visit in visits)
                print(f"lap {lap + 1} of {laps}, {load}: {time.monotonic() - begun:.0f} s", flush=True)
            for resident in residents:
                resident.lap += 1


def read(path: Path) -> list[Visit]:
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return [Visit(**{**row, "histogram": tuple(row["histogram"])}) for row in rows]
