"""Measures the finalists and the baseline again, in turns on one server, before a winner is declared.

The best of many noisy numbers is too good: whoever won did so partly by luck. Alternating launches on the same
processors also cancel what drifts over a study; every other round runs in the opposite order, so that a steady drift
cancels within two rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sweeper.baseline_arm import TAG as BASELINE
from sweeper.baseline_arm import baseline_check
from sweeper.breakeven import Arm, speedup
from sweeper.records import Baseline, BaselineCheck, ConfirmationRound, Load, TrialResult, TrialState
from sweeper.run_directory import RunDirectory
from sweeper.space import Candidate
from sweeper.stored_trial import label
from sweeper.surroundings import NO_CANDIDATE, Servers
from sweeper.trial_order import TrialOrder, TrialPlan

Finalists = Mapping[int, Candidate]
"""Candidates by the number of their trial."""


class Confirmation:
    """Runs rounds; ``tick`` is told what it waits for."""

    def __init__(
        self, plan: TrialPlan, servers: Servers, run: RunDirectory, tick: Callable[[str], None]
    ) -> None:
        self.plan, self.servers, self.run, self.tick = plan, servers, run, tick
        study = plan.study
        self.loads = study.objective_loads if study.confirmation.objective_only else study.workload.loads

    def round(
        self, number: int, baseline: Baseline, finalists: Finalists
    ) -> tuple[ConfirmationRound, BaselineCheck]:
        """One launch of the baseline and of each finalist on the same server.

        Raises:
            KeyboardInterrupt: stopped; the whole round is to be run again.
        """
        trials = {label(trial): candidate for trial, candidate in finalists.items()}
        order = [BASELINE, *trials]
        if number % 2 == 0:
            order.reverse()
        results: dict[str, TrialResult] = {}
        server: str | None = None
        for turn, name in enumerate(order, start=1):
            candidate = trials.get(name, NO_CANDIDATE)
            stage = f"confirming, round {number}: {candidate.effective} ({turn} of {len(order)})"
            results[name] = self._measure(
                f"confirm-{number}-{name}", TrialOrder(candidate, self.loads, baseline.outputs), server, stage
            )
            server = results[name].server
        plain = results.pop(BASELINE)
        numbers = dict(zip(trials, finalists, strict=True))
        done = ConfirmationRound(
            number,
            plain.server,
            tuple(order),
            plain.record,
            {numbers[name]: result.record for name, result in results.items()},
            {numbers[name]: speedups(result, plain, self.loads) for name, result in results.items()},
            {numbers[name]: why for name, result in results.items() if (why := _failure(result, plain))},
        )
        return done, baseline_check(self.plan, baseline, plain, f"confirmation {number}")

    def _measure(self, tag: str, order: TrialOrder, server: str | None, stage: str) -> TrialResult:
        """On the same server as before, or on any other where that is gone."""
        while not (idle := self.servers.idle()):
            self.servers.wait(1.0)
            self.tick(stage)
        self.servers.start(tag, order, server if server in idle else idle[0])
        finished: list[tuple[str, TrialResult]] = []
        while not finished:
            finished = self.servers.wait(1.0)
            self.tick(stage)
        result = finished[0][1]
        self.run.write_log(tag, result.log)
        self.run.write_requests(tag, result.requests)
        if result.record.state is TrialState.INTERRUPTED:
            raise KeyboardInterrupt
        return result


def speedups(
    ours: TrialResult, plain: TrialResult, loads: Sequence[Load]
) -> dict[str, tuple[float, float, float]]:
    """By load's name, over the baseline of the same round and the same server; nothing for a failed trial."""
    if _failure(ours, plain):
        return {}
    found = {}
    for load in loads:
        estimate = speedup(Arm(load, ours.requests_at(load)), Arm(load, plain.requests_at(load)))
        found[str(load)] = (estimate.value, estimate.error, estimate.freedom)
    return found


def _failure(ours: TrialResult, plain: TrialResult) -> str:
    if plain.record.failure:
        return (
            f"the round's baseline failed: {plain.record.failure.kind.value}: {plain.record.failure.message}"
        )
    if ours.record.failure:
        return f"{ours.record.failure.kind.value}: {ours.record.failure.message}"
    if ours.server != plain.server:
        return "measured on another server than the round's baseline, whose own was lost"
    return ""
