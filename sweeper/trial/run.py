"""One trial: launch a server, measure it, end it; launch it again where a change can cure what went wrong."""

from __future__ import annotations

import os
import re
import time
import traceback
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from sweeper.errors import SweeperError
from sweeper.load.statistics import FailedLoadError
from sweeper.node.hardware import visible_hardware
from sweeper.records import (
    Attempt,
    Failure,
    FailureClass,
    Hardware,
    Pin,
    TrialRecord,
    TrialResult,
    TrialState,
)
from sweeper.server import failures
from sweeper.server.adaptive_file import write_adaptive_file
from sweeper.server.client import ServerUnreachableError
from sweeper.server.command import launch_command, launch_environment, public_command
from sweeper.server.log_text import Cleaner, cleaned_log
from sweeper.server.process import LeakError, ServerDiedError, ServerProcess, StartTimeoutError, fresh_address
from sweeper.server.ranks import MultiNodeServer, RankLostError, RankOrder
from sweeper.server.setup import server_flags
from sweeper.speculation import NO_SPECULATION
from sweeper.trial.measure import Measuring, Progress, StalledError, simulated_acceptance
from sweeper.trial.order import TrialOrder, TrialPlan, Watch
from sweeper.trial.quality import BadOutputError

LOG_LIMIT = 2_000_000
MAX_LAUNCHES = 3
DYING_S = 3.0
LOOPBACK = "127.0.0.1"
MEMORY_FLAG = "mem-fraction-static"
MEMORY_STEP = 0.05


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
    progress = Progress(
        TrialRecord(
            requested=candidate.requested,
            effective=candidate.effective,
            state=TrialState.FAILED,
            overrides=tuple(str(override) for override in candidate.overrides),
            pins=plan.setup.pins,
            unpinned=plan.setup.unpinned,
            server_version=plan.setup.version,
            workload=plan.prompts.fingerprint,
            started_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
    )
    state, failure = TrialState.FAILED, None
    try:
        # Under DP attention SGLang counts its ports from where ranks meet, or else from far outside of our block.
        meeting = watch.ranks.node or (LOOPBACK if plan.study.engine.dp_attention else "")
        with fresh_address(meeting) as progress.address:
            state, failure = _launch_and_measure(plan, order, progress, log, watch)
    except Exception as fault:
        # A fault of this machine or of sweeper itself is recorded like any other, with its place.
        trace = "".join(traceback.format_exception(fault)).splitlines()[-failures.TAIL_LINES :]
        failure = failures.failure(FailureClass.CRASH, f"{type(fault).__name__}: {fault}", "\n".join(trace))
        state = TrialState.FAILED
    finally:
        watch.phase("idle")
    progress.record = replace(progress.record, state=state, failure=failure)
    return _result(progress, log, _cleaner(plan, progress.address.api_key))


def _cleaner(plan: TrialPlan, api_key: str) -> Cleaner:
    try:
        return Cleaner(launch_environment(plan.study), api_key)
    except SweeperError:  # a variable is not set here, so no server was started
        return Cleaner(os.environ, api_key)


def _launch_and_measure(
    plan: TrialPlan, order: TrialOrder, progress: Progress, log: Path, watch: Watch
) -> tuple[TrialState, Failure | None]:
    environment = launch_environment(plan.study)
    write_adaptive_file(order.candidate.requested)
    command = launch_command(plan.study, order.candidate.requested, plan.setup, progress.address)
    device = plan.study.engine.device
    try:
        hardware = visible_hardware(device)
    except OSError as error:
        return TrialState.FAILED, failures.failure(FailureClass.GPU_LOST, str(error))
    progress.record = replace(
        progress.record,
        command=public_command(command),
        hardware=watch.ranks.hardware or hardware,
        simulated=simulated_acceptance(environment) if order.candidate.effective.speculates else "",
    )
    ranks = watch.ranks.others
    if ranks:
        rank_order = RankOrder(order.candidate.requested, plan.setup, progress.address.meeting)
        server: ServerProcess = MultiNodeServer(
            command, environment, progress.address, log, ranks, rank_order
        )
    else:
        owns_gpus = float(plan.study.gpus_per_server).is_integer()
        server = ServerProcess(command, environment, progress.address, log, owns_gpus)
    hangs = False
    try:
        state, failure = _outcome(plan, order, server, progress, watch)
        if failure is not None and failure.kind in failures.UNEXPLAINED:
            failure = _unless_gpus_are_gone(failure, hardware, device)
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
    plan: TrialPlan, order: TrialOrder, server: ServerProcess, progress: Progress, watch: Watch
) -> tuple[TrialState, Failure | None]:
    """Measure, and turn every fault into a state and a classified failure."""
    try:
        Measuring(plan, order, server, progress, watch).all()
        return (TrialState.PRUNED if progress.record.pruned else TrialState.COMPLETE), None
    except InterruptedError:
        return TrialState.INTERRUPTED, None
    except StalledError as stall:
        return TrialState.FAILED, failures.failure(FailureClass.HANG, str(stall), server.log())
    except StartTimeoutError as death:
        return TrialState.FAILED, failures.classify(str(death), death.log, FailureClass.HANG)
    except ServerDiedError as death:
        return TrialState.FAILED, _failure_of_the_dead(death, str(death))
    except BadOutputError as problem:
        return TrialState.FAILED, failures.failure(FailureClass.OUTPUT, str(problem), server.log())
    except (FailedLoadError, ServerUnreachableError) as problem:
        return TrialState.FAILED, _failure_while_serving(problem, server)


def _unless_gpus_are_gone(found: Failure, before: Hardware, device: str) -> Failure:
    """What a server of this node failed of: a GPU that is gone explains whatever else was seen."""
    try:
        now = visible_hardware(device)
    except OSError as error:
        gone = str(error)
    else:
        gone = "" if now.count >= before.count else f"{now.count} of {before.count} GPUs are left"
    if not gone:
        return found
    return replace(
        failures.failure(FailureClass.GPU_LOST, f"{gone}; {found.message}"), log_tail=found.log_tail
    )


def _failure_of_the_dead(death: ServerDiedError, what: str) -> Failure:
    if isinstance(death, RankLostError):
        return failures.failure(FailureClass.LOST, f"a node of the server was lost: {death}", death.log)
    return failures.classify(what, death.log)


def _failure_while_serving(problem: Exception, server: ServerProcess) -> Failure:
    """A failed load, or the death of the server that made it fail."""
    # A dying server drops its connections before its processes are gone.
    deadline = time.monotonic() + DYING_S
    while server.alive and time.monotonic() < deadline:
        time.sleep(0.1)
    try:
        server.raise_if_dead()
    except ServerDiedError as death:
        return _failure_of_the_dead(death, f"the server died during the load: {problem}")
    silent = isinstance(problem, ServerUnreachableError) and "timed out" in str(problem)
    kind = FailureClass.HANG if silent else FailureClass.MEASUREMENT
    return failures.failure(kind, str(problem), server.log())


def _result(progress: Progress, log: Path, clean: Cleaner) -> TrialResult:
    """What leaves this node. Everything in words goes through ``clean``, wherever it came from."""
    text = cleaned_log(log, clean)
    record = replace(progress.record, load_points=tuple(progress.points), warnings=failures.warnings(text))
    if progress.stacks:
        text += f"\n== stacks of the hanging server's processes ==\n{clean(progress.stacks)}\n"
    return TrialResult(
        clean.record(record),
        tuple(clean.request(request) for request in progress.requests),
        progress.outputs,
        text[-LOG_LIMIT:],
        progress.leak and clean(progress.leak),
    )
