"""One launch of a server, measured to its end; and what leaves the node of it."""

from __future__ import annotations

import os
import traceback
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from sweeper.errors import SweeperError
from sweeper.node.hardware import visible_hardware
from sweeper.records import FailureClass, TrialRecord, TrialResult, TrialState
from sweeper.server import failures
from sweeper.server.adaptive_file import write_adaptive_file
from sweeper.server.command import launch_command, launch_environment, public_command
from sweeper.server.log_text import Cleaner, cleaned_log, read_log
from sweeper.server.process import LeakError, ServerProcess, fresh_address
from sweeper.server.ranks import MultiNodeServer, RankOrder
from sweeper.trial.kept import Keeper, KeptServer
from sweeper.trial.measure import Progress, simulated_acceptance
from sweeper.trial.order import TrialOrder, TrialPlan, Watch
from sweeper.trial.outcome import MEASURED, Outcome, hangs, outcome

LOG_LIMIT = 2_000_000
LOOPBACK = "127.0.0.1"


class GpuLostError(Exception):
    """The processors of this node cannot be seen."""


def launch(plan: TrialPlan, order: TrialOrder, log: Path, watch: Watch, keeper: Keeper) -> TrialResult:
    """Start a server, measure it, and end it, or leave it to the ``keeper``."""
    progress = begun(plan, order)
    ended: Outcome = TrialState.FAILED, None
    try:
        # Under DP attention SGLang counts its ports from where ranks meet, or else from far outside of our block.
        meeting = watch.ranks.node or (LOOPBACK if plan.study.engine.dp_attention else "")
        with ExitStack() as held:
            progress.address = held.enter_context(fresh_address(meeting))
            server = _started(plan, order, progress, log, watch)
            try:
                ended = outcome(plan, order, server, progress, watch)
            finally:
                if order.hot_swap.keep and ended[0] in MEASURED:
                    config, checksum = order.candidate.effective, progress.record.draft_checksum
                    keeper.kept = KeptServer(server, config, config.draft, log, held.pop_all(), checksum)
                else:
                    end(server, progress, watch, at_once=hangs(ended[1]))
    except GpuLostError as error:
        ended = TrialState.FAILED, failures.failure(FailureClass.GPU_LOST, str(error))
    except Exception as fault:
        # A fault of this machine or of sweeper itself is recorded like any other, with its place.
        trace = "".join(traceback.format_exception(fault)).splitlines()[-failures.TAIL_LINES :]
        what = f"{type(fault).__name__}: {fault}"
        ended = TrialState.FAILED, failures.failure(FailureClass.CRASH, what, "\n".join(trace))
    finally:
        watch.phase("idle")
    return result_of(plan, progress, ended, log, kept=keeper.kept is not None)


def begun(plan: TrialPlan, order: TrialOrder) -> Progress:
    """A trial of which nothing is known but what was asked for."""
    candidate = order.candidate
    return Progress(
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


def describe(plan: TrialPlan, order: TrialOrder, progress: Progress, watch: Watch) -> list[str]:
    """The command that launches the trial's config; its record tells it from now on, and on what it runs.

    Raises:
        GpuLostError: there is nothing to run it on.
    """
    command = launch_command(plan.study, order.candidate.requested, plan.setup, progress.address)
    try:
        progress.hardware = visible_hardware(plan.study.engine.device)
    except OSError as error:
        raise GpuLostError(str(error)) from None
    speculates = order.candidate.effective.speculates
    progress.record = replace(
        progress.record,
        command=public_command(command),
        hardware=watch.ranks.hardware or progress.hardware,
        simulated=simulated_acceptance(launch_environment(plan.study)) if speculates else "",
    )
    return command


def _started(
    plan: TrialPlan, order: TrialOrder, progress: Progress, log: Path, watch: Watch
) -> ServerProcess:
    write_adaptive_file(order.candidate.requested)
    command, environment = describe(plan, order, progress, watch), launch_environment(plan.study)
    ranks = watch.ranks.others
    if ranks:
        rank_order = RankOrder(order.candidate.requested, plan.setup, progress.address.meeting)
        return MultiNodeServer(command, environment, progress.address, log, ranks, rank_order)
    owns_gpus = float(plan.study.gpus_per_server).is_integer()
    return ServerProcess(command, environment, progress.address, log, owns_gpus)


def end(server: ServerProcess, progress: Progress, watch: Watch, at_once: bool) -> None:
    """What was measured stays measured where something is left of the server; the actor takes no further trial."""
    watch.phase("stopping")
    try:
        server.stop(at_once)
    except LeakError as leak:
        progress.leak = str(leak)


def result_of(
    plan: TrialPlan, progress: Progress, ended: Outcome, log: Path, kept: bool = False, log_from: int = 0
) -> TrialResult:
    """What leaves this node. Everything in words is cleaned, wherever it came from.

    ``kept``: the server goes on, and writes to its log; what this trial is not concerned with ends at ``log_from``.
    """
    clean = _cleaner(plan, progress.address.api_key)
    text = clean(read_log(log, log_from)) if kept else cleaned_log(log, clean)
    record = replace(
        progress.record,
        state=ended[0],
        failure=ended[1],
        load_points=tuple(progress.points),
        warnings=failures.warnings(text),
    )
    if progress.stacks:
        text += f"\n== stacks of the hanging server's processes ==\n{clean(progress.stacks)}\n"
    return TrialResult(
        clean.record(record),
        tuple(clean.request(request) for request in progress.requests),
        progress.outputs,
        text[-LOG_LIMIT:],
        progress.leak and clean(progress.leak),
        kept=kept,
    )


def _cleaner(plan: TrialPlan, api_key: str) -> Cleaner:
    try:
        return Cleaner(launch_environment(plan.study), api_key)
    except SweeperError:  # a variable is not set here, so no server was started
        return Cleaner(os.environ, api_key)
