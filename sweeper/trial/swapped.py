"""A trial on a server that is there already: its draft's weights are replaced, and what comes of that is judged.

The weights must change, and the outputs stay the target's: that is seen on every swapped trial. That weights and accept
lengths are those of a launch is seen on one of each family of drafts, which is launched as well.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from sweeper.records import (
    Attempt,
    FailureClass,
    HotSwap,
    OutputComparison,
    RequestRecord,
    SwapOutcome,
    TrialResult,
    TrialState,
)
from sweeper.server import failures
from sweeper.server.hot_swap import SwapError, swap_draft
from sweeper.trial.kept import Keeper
from sweeper.trial.launch import begun, describe, result_of
from sweeper.trial.order import TrialOrder, TrialPlan, Watch
from sweeper.trial.outcome import MEASURED, Outcome, hangs, outcome
from sweeper.trial.quality import differences

SAME_WITHIN = 0.02
"""Accept lengths over the same prompts that differ by less are the same: batches differ from run to run."""

LAUNCHED = "launched with its own weights"


def measure_swapped(plan: TrialPlan, order: TrialOrder, keeper: Keeper, watch: Watch) -> TrialResult | None:
    """The trial on the kept server, which may go on after it; None where there is none that could be used."""
    kept, config = keeper.kept, order.candidate.effective
    if kept is None or not order.hot_swap.take or not kept.can_take(config):
        return None
    log_from = kept.log.stat().st_size
    progress = begun(plan, order)
    progress.address = kept.process.address
    since = time.monotonic()
    swap = HotSwap(kept.launched_with, 0.0)
    ended: Outcome
    try:
        describe(plan, order, progress, watch)
        watch.phase("loading other draft weights")
        swap_draft(kept.process, plan.study, config.draft, watch.stop)
        checksum = kept.process.client.draft_checksum()
        if checksum and checksum == kept.checksum:
            raise SwapError("the server took the weights, and has the same as before")
        swap = replace(swap, seconds=time.monotonic() - since)
        progress.record = replace(progress.record, draft_checksum=checksum)
        ended = outcome(plan, order, kept.process, progress, watch)
        progress.record = replace(progress.record, start_s=progress.record.start_s + swap.seconds)
    except InterruptedError:
        ended = TrialState.INTERRUPTED, None
    except Exception as fault:
        what = f"hot swap: {fault}" if isinstance(fault, SwapError) else f"{type(fault).__name__}: {fault}"
        ended = TrialState.FAILED, failures.failure(FailureClass.MEASUREMENT, what, kept.process.log())
    if ended[1] is not None:
        swap = replace(swap, outcome=SwapOutcome.FAILED, why=ended[1].message)
    progress.record = replace(progress.record, hot_swap=swap)
    result = result_of(plan, progress, ended, kept.log, kept=True, log_from=log_from)
    if order.hot_swap.keep and stands(result, order) and ended[0] in MEASURED:
        kept.config, kept.checksum = config, result.record.draft_checksum
        watch.phase("idle")
        return result
    watch.phase("stopping")
    progress.leak = keeper.end(at_once=hangs(ended[1]))
    watch.phase("idle")
    return replace(result, leak=progress.leak, kept=False)


def stands(result: TrialResult, order: TrialOrder) -> bool:
    """Whether what a swapped server gave is the trial's result; else its config is launched after all."""
    record = result.record
    if record.state is TrialState.INTERRUPTED:
        return True
    sound = not _changed(record.comparison, order.hot_swap.floor)
    return record.state in MEASURED and not order.hot_swap.prove and sound


def compared(swapped: TrialResult, launched: TrialResult, order: TrialOrder) -> TrialResult:
    """The launch's result, with what it says of the swap; and with why the swapped server gave none, if it did not."""
    record, swap = launched.record, swapped.record.hot_swap
    attempts = record.attempts
    if swapped.record.failure:
        attempts = (Attempt(swapped.record.failure, LAUNCHED), *attempts)
    if record.state not in MEASURED:
        swap = None  # nothing to compare with
    elif swap and swap.outcome is SwapOutcome.MEASURED:
        swap = _judged(swap, swapped, launched, order.hot_swap.floor)
    return replace(launched, record=replace(record, hot_swap=swap, attempts=attempts))


def _judged(
    swap: HotSwap, swapped: TrialResult, launched: TrialResult, floor: OutputComparison | None
) -> HotSwap:
    lengths = accept_lengths(swapped.requests, launched.requests)
    ours, theirs = swapped.record.draft_checksum, launched.record.draft_checksum
    if _changed(swapped.record.comparison, floor):
        why = "outputs leave the baseline's"
    elif ours and theirs and ours != theirs:
        why = "the weights are others than those of a launch"
    elif lengths is None:
        why = "no accept length was told"
    elif abs(lengths[0] / lengths[1] - 1) > SAME_WITHIN and _apart(swapped, launched):
        why = f"the accept lengths differ by more than {SAME_WITHIN:.0%}"
    else:
        why = ""
    ours_length, their_length = lengths or (None, None)
    result = SwapOutcome.REFUTED if why else SwapOutcome.PROVEN
    return HotSwap(swap.launched_with, swap.seconds, result, ours_length, their_length, why)


def _changed(found: OutputComparison | None, floor: OutputComparison | None) -> bool:
    return found is not None and bool(differences(found, floor))


def _apart(ours: TrialResult, theirs: TrialResult) -> bool:
    """Whether the accept lengths' intervals have nothing in common at some load."""
    return any(
        other is not None
        and (
            point.accept_length.low > other.accept_length.high
            or other.accept_length.low > point.accept_length.high
        )
        for point in ours.record.load_points
        for other in [theirs.record.at(point.load)]
    )


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
