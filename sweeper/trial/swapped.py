"""A trial on a server that is there already: its draft's weights are replaced, and what comes of that is judged.

Outputs must be the target's, and accept lengths those of a launch. The first is seen on every swapped trial; the
second on one of each family of drafts, which is launched as well.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from sweeper.records import (
    Attempt,
    FailureClass,
    HotSwap,
    RequestRecord,
    TrialResult,
    TrialState,
)
from sweeper.server import failures
from sweeper.server.hot_swap import SwapError, swap_draft
from sweeper.server.process import ServerDiedError
from sweeper.trial.kept import Keeper
from sweeper.trial.launch import begun, describe, result_of
from sweeper.trial.order import TrialOrder, TrialPlan, Watch
from sweeper.trial.outcome import MEASURED, Outcome, hangs, outcome
from sweeper.trial.quality import lossy

SAME_WITHIN = 0.02
"""Accept lengths over the same prompts that differ by less are the same: batches differ from run to run."""

LAUNCHED = "launched with its own weights"


def measure_swapped(plan: TrialPlan, order: TrialOrder, keeper: Keeper, watch: Watch) -> TrialResult | None:
    """The trial on the kept server, which may go on after it; None where there is none that could be used."""
    kept, config = keeper.kept, order.candidate.effective
    if kept is None or not order.hot_swap.take or not kept.can_take(config):
        return None
    progress = begun(plan, order)
    progress.address = kept.process.address
    since = time.monotonic()
    swap = HotSwap(kept.launched_with, 0.0)
    ended: Outcome = TrialState.FAILED, None
    goes_on = False
    try:
        describe(plan, order, progress, watch)
        watch.phase("loading other draft weights")
        kept.process.raise_if_dead()
        swap_draft(kept.process, plan.study, config.draft)
        swap = replace(swap, seconds=time.monotonic() - since)
        ended = outcome(plan, order, kept.process, progress, watch)
        progress.record = replace(progress.record, start_s=progress.record.start_s + swap.seconds)
        goes_on = ended[0] in MEASURED and order.hot_swap.keep and not order.hot_swap.prove
    except (SwapError, ServerDiedError) as problem:
        what = f"hot swap: {problem}"
        failure = failures.failure(FailureClass.MEASUREMENT, what, kept.process.log())
        ended = TrialState.FAILED, failure
    except Exception as fault:
        what = f"hot swap: {type(fault).__name__}: {fault}"
        ended = TrialState.FAILED, failures.failure(FailureClass.CRASH, what, kept.process.log())
    finally:
        watch.phase("idle")
    progress.record = replace(progress.record, hot_swap=swap)
    result = result_of(plan, progress, ended, kept.log, kept=True)
    if goes_on and stands(result, order):
        kept.config = config
        return result
    watch.phase("stopping")
    leak = keeper.end(at_once=hangs(ended[1]))
    watch.phase("idle")
    return replace(result, leak=leak, kept=False)


def stands(result: TrialResult, order: TrialOrder) -> bool:
    """Whether what a swapped server gave is the trial's result; else its config is launched after all."""
    record = result.record
    if record.state is TrialState.INTERRUPTED:
        return True
    return record.state in MEASURED and not order.hot_swap.prove and not lossy(record, order.hot_swap.floor)


def compared(swapped: TrialResult, launched: TrialResult, order: TrialOrder) -> TrialResult:
    """The launch's result, with what it says of the swap; and with why the swapped server gave none, if it did not."""
    record, swap = launched.record, swapped.record.hot_swap
    attempts = record.attempts
    if swapped.record.failure:
        attempts = (Attempt(swapped.record.failure, LAUNCHED), *attempts)
    lengths = accept_lengths(swapped.requests, launched.requests)
    if swap and record.state in MEASURED:
        if swapped.record.failure or lengths is None:
            swap = replace(swap, proven=False)
        else:
            floor = order.hot_swap.floor
            same = abs(lengths[0] / lengths[1] - 1) <= SAME_WITHIN
            sound = bool(lossy(record, floor)) or not lossy(swapped.record, floor)
            swap = HotSwap(swap.launched_with, swap.seconds, *lengths, proven=same and sound)
    return replace(launched, record=replace(record, hot_swap=swap, attempts=attempts))


def accept_lengths(
    ours: Sequence[RequestRecord], theirs: Sequence[RequestRecord]
) -> tuple[float, float] | None:
    """Accept lengths of two measurements over the prompts that both were answered; None where none tells them."""
    rounds = [
        {(r.load, r.lap, r.prompt): r for r in requests if r.verify_rounds} for requests in (ours, theirs)
    ]
    both = rounds[0].keys() & rounds[1].keys()
    if not both:
        return None
    lengths = [
        sum(found[key].completion_tokens - 1 for key in both)
        / sum(found[key].verify_rounds or 0 for key in both)
        for found in rounds
    ]
    return lengths[0], lengths[1]
