"""One trial: launch a server, measure it, end it; launch it again where a change can cure what went wrong.

Where a server that runs a sibling of the draft was kept from the trial before, its weights are replaced instead.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from sweeper.records import Attempt, FailureClass, Pin, TrialResult, TrialState
from sweeper.server import failures
from sweeper.server.setup import server_flags
from sweeper.speculation import NO_SPECULATION
from sweeper.trial.kept import Keeper
from sweeper.trial.launch import begun, launch, result_of
from sweeper.trial.order import TrialOrder, TrialPlan, Watch
from sweeper.trial.swapped import compared, measure_swapped, stands

MAX_LAUNCHES = 3
MEMORY_FLAG = "mem-fraction-static"
MEMORY_STEP = 0.05


def run_trial(
    plan: TrialPlan, order: TrialOrder, log: Path, watch: Watch = Watch(), keeper: Keeper | None = None
) -> TrialResult:
    """Measure one candidate on a server of its own. Every outcome is a result; nothing is raised for a fault.

    A launch that failed for a reason that a change can cure (ports, memory) is made again with that change, at
    most MAX_LAUNCHES times. ``log`` is where the server's output goes. On return no process of the server is left,
    unless ``leak`` says so, or the ``keeper`` has it.
    """
    keeper = keeper or Keeper()
    swapped = measure_swapped(plan, order, keeper, watch)
    if swapped is not None and stands(swapped, order):
        return swapped
    leak = swapped.leak if swapped is not None else keeper.end()
    if leak:
        what = f"an earlier server left something behind: {leak}"
        failure = failures.failure(FailureClass.LOST, what)
        return replace(result_of(plan, begun(plan, order), (TrialState.FAILED, failure), log), leak=leak)
    result = _launches(plan, order, log, watch, keeper)
    return result if swapped is None else compared(swapped, result, order)


def _launches(plan: TrialPlan, order: TrialOrder, log: Path, watch: Watch, keeper: Keeper) -> TrialResult:
    attempts: list[Attempt] = []
    results: list[TrialResult] = []
    plan_now = plan
    while True:
        result = launch(plan_now, order, log, watch, keeper)
        results.append(result)
        changed = next_launch(plan_now, result, len(attempts) + 1)
        if changed is None:
            break
        plan_now, change = changed
        order = replace(order, hot_swap=replace(order.hot_swap, keep=False))  # it runs with other pins
        assert result.record.failure is not None
        attempts.append(Attempt(result.record.failure, change))
    # Where no launch came through, the one that measured most is kept.
    best = max(results, key=lambda r: (r.record.failure is None, len(r.record.load_points)))
    return replace(best, record=replace(best.record, attempts=tuple(attempts)), leak=result.leak)


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
