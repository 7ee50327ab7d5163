"""One trial: launch a server, read back what it runs, measure every load, compare its outputs, end it."""

from __future__ import annotations

import contextlib
import re
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from sweeper.config import StudyConfig
from sweeper.hardware import visible_hardware
from sweeper.load.closed_loop import LoadGenerator, LoadRun
from sweeper.load.statistics import FailedLoadError, load_point
from sweeper.records import (
    Attempt,
    Divergence,
    Failure,
    FailureClass,
    LoadPoint,
    OutputComparison,
    Pin,
    RequestRecord,
    TrialRecord,
    TrialResult,
    TrialState,
)
from sweeper.server import failures
from sweeper.server.client import ServerUnreachableError
from sweeper.server.command import Address, launch_command, launch_environment, public_command
from sweeper.server.process import LeakError, ServerDiedError, ServerProcess, StartTimeoutError, fresh_address
from sweeper.server.setup import EngineSetup, server_flags
from sweeper.space import Candidate
from sweeper.speculation import NO_SPECULATION
from sweeper.workload.prompts import PromptPlan

LOG_LIMIT = 2_000_000
NO_ADDRESS = Address(0, "")
MAX_LAUNCHES = 3
DYING_S = 3.0
MEMORY_FLAG = "mem-fraction-static"
MEMORY_STEP = 0.05
MAX_ASKED = 50
"""Divergences whose gap is asked for; each costs one request."""

NEAR_TIE_FLOAT32 = 1e-3
NEAR_TIE_BFLOAT16 = 0.25
"""Nats. bfloat16 logits between 16 and 32 come in steps of 0.125, so two steps may be rounding."""


@dataclass(frozen=True)
class TrialPlan:
    """What all trials of a study share; shipped to every actor once."""

    study: StudyConfig
    setup: EngineSetup
    prompts: PromptPlan


@dataclass(frozen=True)
class TrialOrder:
    """One trial to run: a candidate, the loads to measure it at, and the outputs to compare its own with.

    ``reference`` holds the baseline's token ids by prompt; None while measuring the baseline.
    """

    candidate: Candidate
    loads: tuple[int, ...]
    reference: Mapping[str, tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Watch:
    """How a running trial talks to its owner: ``phase`` is told what happens, ``stop`` is asked."""

    phase: Callable[[str], None] = lambda text: None
    stop: Callable[[], bool] = lambda: False


class StalledError(Exception):
    """The server sends no token to anyone any more, though its processes live."""


Outputs = Mapping[str, tuple[int, ...]]


@dataclass
class _Progress:
    """What a trial has gathered so far; a failure keeps it."""

    record: TrialRecord
    address: Address = NO_ADDRESS
    leak: str | None = None
    stacks: str = ""
    points: list[LoadPoint] = field(default_factory=list)
    requests: list[RequestRecord] = field(default_factory=list)
    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def result(self, state: TrialState, failure: Failure | None, log: str) -> TrialResult:
        record = replace(
            self.record,
            state=state,
            failure=failure,
            load_points=tuple(self.points),
            warnings=failures.warnings(log),
        )
        if self.stacks:
            log = f"{log}\n== stacks of the hanging server's processes ==\n{self.stacks}\n"
        return TrialResult(record, tuple(self.requests), self.outputs, log[-LOG_LIMIT:], self.leak)


def run_trial(plan: TrialPlan, order: TrialOrder, log: Path, watch: Watch = Watch()) -> TrialResult:
    """Measure one candidate on a server of its own. Every outcome is a result; nothing is raised for a fault.

    A launch that failed for a reason that a change can cure (ports, memory) is made again with that change, at
    most MAX_LAUNCHES times. ``log`` is where the server's output goes. On return no process of the server is left,
    unless ``leak`` says so.
    """
    attempts: list[Attempt] = []
    results: list[TrialResult] = []
    plan_now = plan
    while True:
        result = _one_launch(plan_now, order, log, watch)
        results.append(result)
        changed = next_launch(plan_now, result, len(attempts) + 1)
        if changed is None:
            break
        plan_now, change = changed
        assert result.record.failure is not None
        attempts.append(Attempt(result.record.failure, change))
    # Where no launch came through, the one that measured most is kept.
    kept = max(results, key=lambda r: (r.record.failure is None, len(r.record.load_points)))
    return replace(kept, record=replace(kept.record, attempts=tuple(attempts)), leak=result.leak)


def next_launch(plan: TrialPlan, result: TrialResult, launches: int) -> tuple[TrialPlan, str] | None:
    """What to change for another launch of the same config, in words too; None where none would help."""
    failure = result.record.failure
    if failure is None or result.leak or launches >= MAX_LAUNCHES:
        return None
    remedy = failures.ADVICE[failure.kind].remedy
    if remedy in (failures.Remedy.NEW_PORTS, failures.Remedy.SAME):
        return (plan, remedy.value) if launches == 1 or remedy is failures.Remedy.NEW_PORTS else None
    if remedy not in (failures.Remedy.LESS_MEMORY, failures.Remedy.MORE_MEMORY):
        return None
    before = _memory_share(plan, result)
    step = -MEMORY_STEP if remedy is failures.Remedy.LESS_MEMORY else MEMORY_STEP
    if before is None or not 0.1 < before + step < 0.98:
        return None
    share = round(before + step, 3)
    pin = Pin(MEMORY_FLAG, share, f"{failure.kind.value} with {before:g} in the same trial")
    others = tuple(p for p in plan.setup.pins if p.flag != MEMORY_FLAG)
    setup = replace(plan.setup, pins=(*others, pin))
    return replace(plan, setup=setup), f"{MEMORY_FLAG} {before:g} -> {share:g}"


def _memory_share(plan: TrialPlan, result: TrialResult) -> float | None:
    """mem-fraction-static of the last launch: as set, or as SGLang names it in its complaint."""
    given = server_flags(plan.study, NO_SPECULATION, plan.setup).get(MEMORY_FLAG)
    if isinstance(given, (int, float)):
        return float(given)
    found = re.search(r"mem_fraction_static=([\d.]*\d)", result.log)
    return float(found.group(1)) if found else None


def _one_launch(plan: TrialPlan, order: TrialOrder, log: Path, watch: Watch) -> TrialResult:
    candidate = order.candidate
    progress = _Progress(
        TrialRecord(
            requested=candidate.requested,
            effective=candidate.effective,
            state=TrialState.FAILED,
            overrides=tuple(str(override) for override in candidate.overrides),
            pins=plan.setup.pins,
            unpinned=plan.setup.unpinned,
            server_version=plan.setup.version,
            started_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
    )
    state, failure = TrialState.FAILED, None
    try:
        with fresh_address() as progress.address:
            state, failure = _launch_and_measure(plan, order, progress, log, watch)
    except Exception as fault:
        # A fault of this machine or of sweeper itself is recorded like any other, with its place.
        trace = "".join(traceback.format_exception(fault)).splitlines()[-failures.TAIL_LINES :]
        failure = failures.failure(FailureClass.CRASH, f"{type(fault).__name__}: {fault}", "\n".join(trace))
        state = TrialState.FAILED
    finally:
        watch.phase("idle")
    text = log.read_text("utf-8", "replace") if log.exists() else ""
    key = progress.address.api_key
    return progress.result(state, failure, text.replace(key, "***") if key else text)


def _launch_and_measure(
    plan: TrialPlan, order: TrialOrder, progress: _Progress, log: Path, watch: Watch
) -> tuple[TrialState, Failure | None]:
    command = launch_command(plan.study, order.candidate.requested, plan.setup, progress.address)
    progress.record = replace(
        progress.record,
        command=public_command(command),
        hardware=visible_hardware(plan.study.engine.device),
    )
    owns_gpus = float(plan.study.gpus_per_server).is_integer()
    server = ServerProcess(command, launch_environment(plan.study), progress.address, log, owns_gpus)
    hangs = False
    try:
        state, failure = _outcome(plan, order, server, progress, watch)
        hangs = failure is not None and failure.kind is FailureClass.HANG
        if hangs:
            progress.stacks = server.stacks()
        return state, failure
    finally:
        watch.phase("stopping")
        try:
            server.stop(at_once=hangs)
        except LeakError as leak:  # what was measured stays measured; the actor takes no further trial
            progress.leak = str(leak)


def _outcome(
    plan: TrialPlan, order: TrialOrder, server: ServerProcess, progress: _Progress, watch: Watch
) -> tuple[TrialState, Failure | None]:
    """Measure, and turn every fault into a state and a classified failure."""
    try:
        _measure(plan, order, server, progress, watch)
        return TrialState.COMPLETE, None
    except InterruptedError:
        return TrialState.INTERRUPTED, None
    except StalledError as stall:
        return TrialState.FAILED, failures.failure(FailureClass.HANG, str(stall), server.log())
    except StartTimeoutError as death:
        return TrialState.FAILED, failures.classify(str(death), death.log, FailureClass.HANG)
    except ServerDiedError as death:
        return TrialState.FAILED, failures.classify(str(death), death.log)
    except (FailedLoadError, ServerUnreachableError) as problem:
        return TrialState.FAILED, _failure_while_serving(problem, server)


def _failure_while_serving(problem: Exception, server: ServerProcess) -> Failure:
    """A failed load, or the death of the server that made it fail."""
    # A dying server drops its connections before its processes are gone.
    deadline = time.monotonic() + DYING_S
    while server.alive and time.monotonic() < deadline:
        time.sleep(0.1)
    if not server.alive:
        return failures.classify(f"the server died during the load: {problem}", server.log())
    silent = isinstance(problem, ServerUnreachableError) and "timed out" in str(problem)
    kind = FailureClass.HANG if silent else FailureClass.MEASUREMENT
    return failures.failure(kind, str(problem), server.log())


def _measure(
    plan: TrialPlan, order: TrialOrder, server: ServerProcess, progress: _Progress, watch: Watch
) -> None:
    study, record = plan.study, progress.record
    watch.phase("starting")
    begun = time.monotonic()
    server.wait_until_ready(study.engine.start_timeout_s, watch.stop)
    info = server.client.info()
    effective = info.effective(record.effective)
    overrides = record.overrides
    if effective != record.effective:
        overrides += (f"the server runs {effective}, not {record.effective} as its rules predict",)
    fits = info.engine.get("effective_max_running_requests_per_dp")
    if isinstance(fits, int) and fits < max(order.loads):
        overrides += (f"max_running_requests {max(order.loads)} -> {fits}: the KV cache holds no more",)
    ready = time.monotonic()
    progress.record = record = replace(
        record,
        effective=effective,
        overrides=overrides,
        server_version=info.version or record.server_version,
        engine=info.engine,
        start_s=ready - begun,
    )
    for concurrency in order.loads:
        _measure_load(plan, server, progress, concurrency, watch)
    comparison = None
    if order.reference is not None and study.workload.temperature == 0:
        watch.phase("comparing outputs")
        comparison = compare_outputs(plan, server, progress.outputs, order.reference)
    progress.record = replace(record, comparison=comparison, measure_s=time.monotonic() - ready)


def _measure_load(
    plan: TrialPlan, server: ServerProcess, progress: _Progress, concurrency: int, watch: Watch
) -> None:
    generator = LoadGenerator(server.address, plan.study.workload, plan.study.measurement)

    def stop() -> bool:
        return watch.stop() or not server.alive

    watch.phase(f"warming up at concurrency {concurrency}")
    warmup = generator.run(plan.prompts.warmup[concurrency], concurrency, stop)
    _go_on(server, watch, warmup)
    server.client.flush_cache()
    watch.phase(f"measuring concurrency {concurrency}")
    run = generator.run(plan.prompts.by_load[concurrency], concurrency, stop)
    _go_on(server, watch, run)
    progress.requests.extend(run.requests)
    progress.outputs.update(run.outputs)
    progress.points.append(load_point(run, progress.record.effective.speculates))


def _go_on(server: ServerProcess, watch: Watch, run: LoadRun) -> None:
    """Raises InterruptedError, ServerDiedError or StalledError where the trial must end here."""
    if watch.stop():
        raise InterruptedError("trial interrupted")
    server.raise_if_dead()
    if run.stalled_s is not None:
        done = len(run.requests)
        raise StalledError(
            f"no token from any of {run.concurrency} requests for {run.stalled_s:.0f} s, after {done} finished ones"
        )


def compare_outputs(
    plan: TrialPlan, server: ServerProcess, ours: Outputs, reference: Outputs
) -> OutputComparison:
    """Token ids against the baseline's; where one leaves it, the server says how near a tie it was.

    Float rounding depends on the batch's shape, so a greedy choice between two (almost) equally likely
    tokens may fall either way without any error in the speculation.
    """
    near_tie = NEAR_TIE_FLOAT32 if _dtype(plan) == "float32" else NEAR_TIE_BFLOAT16
    timeout_s = plan.study.measurement.request_timeout_s
    texts = {p.id: p.text for prompts in plan.prompts.by_load.values() for p in prompts}
    shared = sorted(ours.keys() & reference.keys())
    divergences: list[Divergence] = []
    for prompt in shared:
        position = first_difference(ours[prompt], reference[prompt])
        if position is None:
            continue
        gap = None
        if len(divergences) < MAX_ASKED:
            with contextlib.suppress(ServerUnreachableError):
                gap = server.client.top_two_gap(texts[prompt], reference[prompt][:position], timeout_s)
        divergences.append(Divergence(prompt, position, gap))
    return OutputComparison(len(shared), len(shared) - len(divergences), tuple(divergences), near_tie)


def _dtype(plan: TrialPlan) -> object:
    return server_flags(plan.study, NO_SPECULATION, plan.setup).get("dtype")


def first_difference(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int | None:
    """Index of the first token that differs, or at which one output ends early; None if equal."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return i
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))
