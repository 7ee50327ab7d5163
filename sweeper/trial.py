"""One trial: launch a server, read back what it runs, measure every load, compare its outputs, end it."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from sweeper.config import StudyConfig
from sweeper.hardware import visible_hardware
from sweeper.load.closed_loop import LoadGenerator
from sweeper.load.statistics import FailedLoadError, load_point
from sweeper.records import (
    Divergence,
    Failure,
    FailureClass,
    LoadPoint,
    OutputComparison,
    RequestRecord,
    TrialRecord,
    TrialResult,
    TrialState,
)
from sweeper.server import failures
from sweeper.server.client import ServerUnreachableError
from sweeper.server.command import Address, launch_command, launch_environment, public_command, server_flags
from sweeper.server.process import LeakError, ServerDiedError, ServerProcess, StartTimeoutError, free_address
from sweeper.space import Candidate
from sweeper.speculation import NO_SPECULATION
from sweeper.workload.prompts import PromptPlan

LOG_LIMIT = 2_000_000
MAX_ASKED = 50
"""Divergences whose gap is asked for; each costs one request."""

NEAR_TIE_FLOAT32 = 1e-3
NEAR_TIE_BFLOAT16 = 0.25
"""Nats. bfloat16 logits between 16 and 32 come in steps of 0.125, so two steps may be rounding."""


@dataclass(frozen=True)
class TrialPlan:
    """What all trials of a study share; shipped to every actor once."""

    study: StudyConfig
    version: str
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


Outputs = Mapping[str, tuple[int, ...]]


@dataclass
class _Progress:
    """What a trial has gathered so far; a failure keeps it."""

    record: TrialRecord
    address: Address
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
        return TrialResult(record, tuple(self.requests), self.outputs, log[-LOG_LIMIT:])


def run_trial(plan: TrialPlan, order: TrialOrder, log: Path, watch: Watch = Watch()) -> TrialResult:
    """Measure one candidate on a server of its own. Every outcome is a result; nothing is raised for a fault.

    ``log`` is where the server's output goes. On return no process of the server is left.
    """
    candidate = order.candidate
    progress = _Progress(
        TrialRecord(
            requested=candidate.requested,
            effective=candidate.effective,
            state=TrialState.FAILED,
            overrides=tuple(str(override) for override in candidate.overrides),
            server_version=plan.version,
            started_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        ),
        free_address(),
    )
    try:
        state, failure = _launch_and_measure(plan, order, progress, log, watch)
    except LeakError as leak:
        state, failure = TrialState.FAILED, Failure(FailureClass.CRASH, str(leak))
    except Exception as fault:
        # A fault of this machine or of sweeper itself is recorded like any other, with its place.
        trace = "".join(traceback.format_exception(fault)).splitlines()[-failures.TAIL_LINES :]
        message = f"{type(fault).__name__}: {fault}"
        state, failure = TrialState.FAILED, Failure(FailureClass.CRASH, message, tuple(trace))
    finally:
        watch.phase("idle")
    text = log.read_text("utf-8", "replace") if log.exists() else ""
    return progress.result(state, failure, text.replace(progress.address.api_key, "***"))


def _launch_and_measure(
    plan: TrialPlan, order: TrialOrder, progress: _Progress, log: Path, watch: Watch
) -> tuple[TrialState, Failure | None]:
    command = launch_command(plan.study, order.candidate.requested, plan.version, progress.address)
    progress.record = replace(
        progress.record,
        command=public_command(command),
        hardware=visible_hardware(plan.study.engine.device),
    )
    with ServerProcess(command, launch_environment(plan.study), progress.address, log) as server:
        return _outcome(plan, order, server, progress, watch)


def _outcome(
    plan: TrialPlan, order: TrialOrder, server: ServerProcess, progress: _Progress, watch: Watch
) -> tuple[TrialState, Failure | None]:
    """Measure, and turn every fault into a state and a classified failure."""
    try:
        _measure(plan, order, server, progress, watch)
        return TrialState.COMPLETE, None
    except InterruptedError:
        return TrialState.INTERRUPTED, None
    except ServerDiedError as death:
        kind = FailureClass.HANG if isinstance(death, StartTimeoutError) else FailureClass.CRASH
        return TrialState.FAILED, failures.classify(str(death), death.log, kind)
    except (FailedLoadError, ServerUnreachableError) as problem:
        return TrialState.FAILED, _failure_while_serving(problem, server)


def _failure_while_serving(problem: Exception, server: ServerProcess) -> Failure:
    """A failed load, or the death of the server that made it fail."""
    time.sleep(1.0)  # a dying server drops its connections before its processes are gone
    if not server.alive:
        return failures.classify(f"the server died during the load: {problem}", server.log())
    kind = FailureClass.HANG if "timed out" in str(problem) else FailureClass.MEASUREMENT
    return Failure(kind, str(problem), failures.tail(server.log()))


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
    ready = time.monotonic()
    progress.record = record = replace(
        record,
        effective=effective,
        overrides=overrides,
        server_version=info.version or record.server_version,
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
    generator.run(plan.prompts.warmup[concurrency], concurrency, stop)
    _go_on(server, watch)
    server.client.flush_cache()
    watch.phase(f"measuring concurrency {concurrency}")
    run = generator.run(plan.prompts.by_load[concurrency], concurrency, stop)
    _go_on(server, watch)
    progress.requests.extend(run.requests)
    progress.outputs.update(run.outputs)
    progress.points.append(load_point(run, progress.record.effective.speculates))


def _go_on(server: ServerProcess, watch: Watch) -> None:
    """Raises InterruptedError or ServerDiedError where the trial must end here."""
    if watch.stop():
        raise InterruptedError("trial interrupted")
    server.raise_if_dead()


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
    return server_flags(plan.study, NO_SPECULATION, plan.version).get("dtype")


def first_difference(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int | None:
    """Index of the first token that differs, or at which one output ends early; None if equal."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return i
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))
