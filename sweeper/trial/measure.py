"""What happens between a server's readiness and its end: warm up, measure every load, compare the outputs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sweeper.load.generator import LoadGenerator, LoadRun, Order
from sweeper.load.repeatability import repeatability
from sweeper.load.statistics import (
    Expectation,
    LoadData,
    after_the_end,
    load_point,
    precise,
    require_answers,
)
from sweeper.load.warmup import warm_up
from sweeper.records import (
    Hardware,
    Load,
    LoadPoint,
    Repeatability,
    RequestRecord,
    TrialRecord,
    Warmup,
    by_load,
)
from sweeper.rules.algorithms import ALGORITHMS
from sweeper.server.checkpoint import end_tokens
from sweeper.server.client import ServerInfo
from sweeper.server.command import Address
from sweeper.server.process import ServerProcess
from sweeper.server.setup import server_flags
from sweeper.speculation import NO_SPECULATION, SpeculationConfig
from sweeper.study.pruning import hopeless
from sweeper.trial.order import TrialOrder, TrialPlan, Watch
from sweeper.trial.quality import (
    NEAR_TIE_BFLOAT16,
    NEAR_TIE_FLOAT32,
    Judge,
    Outputs,
    compare_outputs,
    require_sane,
)
from sweeper.workload.prompts import Prompt, PromptPlan

NO_ADDRESS = Address(0, "")
MOST_BUSY = 0.8
"""Share of a core above which the client may hold the server up."""

SIMULATION = ("SGLANG_SIMULATE_ACC_LEN", "SIMULATE_ACC_LEN")


class StalledError(Exception):
    """The server sends no token to anyone any more, though its processes live."""


@dataclass
class Progress:
    """What a trial has gathered so far; a failure keeps it. ``hardware``: what this node had when it began."""

    record: TrialRecord
    address: Address = NO_ADDRESS
    hardware: Hardware | None = None
    leak: str | None = None
    stacks: str = ""
    points: list[LoadPoint] = field(default_factory=list)
    requests: list[RequestRecord] = field(default_factory=list)
    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def requests_by_load(self) -> dict[Load, list[RequestRecord]]:
        return by_load([point.load for point in self.points], self.requests)


@dataclass
class Measuring:
    """One server under measurement."""

    plan: TrialPlan
    order: TrialOrder
    server: ServerProcess
    progress: Progress
    watch: Watch

    @property
    def config(self) -> SpeculationConfig:
        return self.progress.record.effective

    def all(self) -> None:
        """Read the server back, measure its loads and compare its outputs, into ``progress``.

        Raises:
            InterruptedError, ServerDiedError, StartTimeoutError, StalledError, FailedLoadError, BadOutputError,
            ServerUnreachableError: why the trial ends here.
        """
        self.watch.phase("starting")
        begun = time.monotonic()
        self.server.wait_until_ready(self.plan.study.engine.start_timeout_s, self.watch.stop)
        self.progress.record = read_back(self.progress.record, self.server.client.info(), self.order.loads)
        if (self.order.hot_swap.take or self.order.hot_swap.keep) and not self.progress.record.draft_checksum:
            checksum = self.server.client.draft_checksum()
            self.progress.record = replace(self.progress.record, draft_checksum=checksum)
        ready = time.monotonic()
        self.progress.record = replace(self.progress.record, start_s=ready - begun)
        for load in self.order.loads:
            self.measure(load)
            if why := self.pruned():
                self.progress.record = replace(self.progress.record, pruned=why)
                break
        self.go_round_again()
        self.compare()
        self.progress.record = replace(self.progress.record, measure_s=time.monotonic() - ready)

    def pruned(self) -> str:
        """Why the loads that are left are not measured, or nothing."""
        done = self.progress.requests_by_load()
        left = [str(load) for load in self.order.loads if load not in done]
        why = hopeless(self.order.bar, done) if self.order.bar and left else ""
        return f"{why}; not measured: {', '.join(left)}" if why else ""

    def measure(self, load: Load) -> None:
        """One load: cold, and again after other traffic where the algorithm learns from it."""
        self.watch.phase(f"warming up at {load.in_words()}")
        deck = self.plan.prompts.warmup[load]
        warmup, outputs = warm_up(self.run, deck, load, self.plan.study.measurement)
        require_sane(outputs)
        self.server.client.flush_cache()
        self.one_pass(load, warmup)
        if self.config.speculates and ALGORITHMS[self.config.algorithm].learns:
            self.server.client.flush_cache()
            self.watch.phase(f"showing it other traffic for {load.in_words()}")
            require_answers(self.run(Order(other_prompts(self.plan, load), load, least=0)).requests)
            self.one_pass(replace(load, warm=True), warmup)
            self.server.client.flush_cache()

    def one_pass(self, load: Load, warmup: Warmup) -> None:
        """Send a load's deck until its rate is known well enough, and keep what came of it."""
        run = self.visit(load)
        self._keep(run.outputs)
        notes = (*after_the_end(run.outputs, end_tokens(self.plan.study.engine.model)), *client_limits(run))
        data = LoadData(load, run.requests, run.ended_by, warmup, run.sources, notes)
        self.progress.points.append(load_point(data, self.expected(self.order.repeats)))

    def go_round_again(self) -> None:
        """Visit all loads again, in turns: what differs then is the machine's doing, and all visits count."""
        for lap in range(1, self.order.laps):
            for load in self.order.loads:
                self.server.client.flush_cache()
                self.visit(load, lap)
        if self.order.laps > 1:
            visits = self.progress.requests_by_load()
            expected = self.expected(repeatability(visits))
            for i, point in enumerate(self.progress.points):
                data = LoadData(point.load, visits[point.load], point.ended_by, point.warmup, point.sources)
                self.progress.points[i] = replace(load_point(data, expected), notes=point.notes)

    def expected(self, repeats: Repeatability) -> Expectation:
        study = self.plan.study
        prefix_cache, tolerance = study.workload.prefix_cache, study.measurement.drift_tolerance
        return Expectation.of(self.config, prefix_cache, tolerance, repeats)

    def visit(self, load: Load, lap: int = 0) -> LoadRun:
        """Send a load's deck until its rate is known well enough, and keep the requests."""
        measurement = self.plan.study.measurement
        self.watch.phase(
            f"measuring {load.in_words()}" + (f", lap {lap + 1} of {self.order.laps}" if lap else "")
        )

        def enough(requests: Sequence[RequestRecord], now_s: float) -> bool:
            return self.order.short or precise(requests, load, measurement.target_relative_error)

        run = self.run(
            Order(
                self.plan.prompts.by_load[load.cold],
                load,
                least=measurement.least_requests(load),
                max_seconds=measurement.max_seconds,
                enough=enough,
                rate=self.watch.rate,
            )
        )
        self.progress.requests.extend(replace(request, lap=lap) for request in run.requests)
        return run

    def _keep(self, outputs: Outputs) -> None:
        """Of a prompt that was answered twice, cold and warm, the answer that is not the reference's."""
        kept, reference = self.progress.outputs, self.order.reference or {}
        kept.update({p: o for p, o in outputs.items() if p not in kept or kept[p] == reference.get(p)})

    def run(self, order: Order, **sampling: float) -> LoadRun:
        """Raises InterruptedError, ServerDiedError or StalledError where the trial must end here."""
        study = self.plan.study
        generator = LoadGenerator(
            self.server.address, study.workload.model_copy(update=sampling), study.measurement
        )
        run = generator.run(order, lambda: self.watch.stop() or not self.server.alive)
        if self.watch.stop():
            raise InterruptedError("trial interrupted")
        self.server.raise_if_dead()
        if run.stalled_s is not None:
            raise StalledError(
                f"no token from any request at {run.load.in_words()} for {run.stalled_s:.0f} s, "
                f"after {len(run.requests)} finished ones"
            )
        return run

    def compare(self) -> None:
        """Greedy outputs against the baseline's; where the workload samples, those of a deck of its own."""
        study, prompts = self.plan.study, self.plan.prompts
        if study.workload.temperature > 0:
            self.watch.phase("generating greedily, to compare")
            load = Load(min(study.workload.concurrency))
            run = self.run(Order(prompts.quality, load, least=len(prompts.quality)), **GREEDY)
            require_answers(run.requests)
            self.progress.outputs = dict(run.outputs)
        if self.order.reference is None:
            return
        self.watch.phase("comparing outputs")
        judge = Judge(
            self.server.client, texts(prompts), near_tie(self.plan), study.measurement.request_timeout_s
        )
        comparison = compare_outputs(self.progress.outputs, self.order.reference, judge)
        self.progress.record = replace(self.progress.record, comparison=comparison)


GREEDY: Mapping[str, float] = {"temperature": 0.0, "top_p": 1.0, "top_k": -1}


def read_back(record: TrialRecord, info: ServerInfo, loads: tuple[Load, ...]) -> TrialRecord:
    """The record with what the running server says of itself."""
    effective = info.effective(record.effective)
    overrides = record.overrides
    if effective != record.effective:
        overrides += (f"the server runs {effective}, not {record.effective} as its rules predict",)
    per_replica, replicas = (
        info.engine.get("effective_max_running_requests_per_dp"),
        info.engine.get("dp_size"),
    )
    fits = per_replica * (replicas or 1) if isinstance(per_replica, int) else None
    most = max(load.concurrency for load in loads)
    if fits is not None and fits < most:
        overrides += (f"max_running_requests {most} -> {fits}: the KV cache holds no more",)
    return replace(
        record,
        effective=effective,
        overrides=overrides,
        server_version=info.version or record.server_version,
        engine=info.engine,
    )


def other_prompts(plan: TrialPlan, load: Load) -> tuple[Prompt, ...]:
    """Traffic to learn from before a load: the decks of the other loads, as many prompts as are measured."""
    decks = [deck for other, deck in plan.prompts.by_load.items() if other != load]
    prompts = [prompt for deck in decks for prompt in deck] or list(plan.prompts.warmup[load])
    return tuple(prompts[: plan.study.measurement.most_requests(load)])


def texts(prompts: PromptPlan) -> dict[str, str]:
    """What is sent first, by prompt id."""
    decks = (*prompts.by_load.values(), prompts.quality)
    return {prompt.id: prompt.text for deck in decks for prompt in deck}


def client_limits(run: LoadRun) -> tuple[str, ...]:
    """Says where the client may have been what was measured: it has one core, and that was nearly used up."""
    seconds = max((r.done_s for r in run.requests), default=0.0)
    if run.cpu_s <= MOST_BUSY * seconds:
        return ()
    return (
        f"CLIENT BUSY: sending and reading took {run.cpu_s / seconds:.0%} of a core; "
        "faster servers may look slower than they are",
    )


def simulated_acceptance(environment: Mapping[str, str]) -> str:
    """The variable that makes SGLang report acceptance that it does not have; empty where none is set."""
    for name in SIMULATION:
        try:
            if float(environment.get(name) or 0) > 0:
                return f"{name}={environment[name]}"
        except ValueError:
            continue
    return ""


def near_tie(plan: TrialPlan) -> float:
    """Log-probability distance in nats that rounding can turn around."""
    dtype = server_flags(plan.study, NO_SPECULATION, plan.setup).get("dtype")
    return NEAR_TIE_FLOAT32 if dtype == "float32" else NEAR_TIE_BFLOAT16
