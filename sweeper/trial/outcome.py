"""How a server's measurement ends: with its numbers, or with a fault that has a class."""

from __future__ import annotations

import time
from dataclasses import replace

from sweeper.load.statistics import FailedLoadError
from sweeper.node.hardware import visible_hardware
from sweeper.records import Failure, FailureClass, Hardware, TrialState
from sweeper.server import failures
from sweeper.server.client import ServerUnreachableError
from sweeper.server.process import ServerDiedError, ServerProcess, StartTimeoutError
from sweeper.server.ranks import RankLostError
from sweeper.trial.measure import Measuring, Progress, StalledError
from sweeper.trial.order import TrialOrder, TrialPlan, Watch
from sweeper.trial.quality import BadOutputError

DYING_S = 3.0

MEASURED = (TrialState.COMPLETE, TrialState.PRUNED)

Outcome = tuple[TrialState, Failure | None]


def outcome(
    plan: TrialPlan, order: TrialOrder, server: ServerProcess, progress: Progress, watch: Watch
) -> Outcome:
    """Measure into ``progress``. A server that hangs leaves its stacks there."""
    state, failure = _outcome(plan, order, server, progress, watch)
    if failure is not None and failure.kind in failures.UNEXPLAINED and progress.hardware:
        failure = _unless_gpus_are_gone(failure, progress.hardware, plan.study.engine.device)
    if hangs(failure):
        progress.stacks = server.stacks()
    return state, failure


def hangs(failure: Failure | None) -> bool:
    """Whether the server is to be killed, since it does not react."""
    return failure is not None and failure.kind is FailureClass.HANG


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
