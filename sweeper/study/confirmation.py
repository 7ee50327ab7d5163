"""Measures the finalists and the baseline again, in turns on one server, before a winner is declared.

The best of many noisy numbers is too good: whoever won did so partly by luck. Alternating launches on the same
processors also cancel what drifts over a study; every other round runs in the opposite order, so that a steady drift
cancels within two rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from sweeper.breakeven import speedup_at
from sweeper.records import (
    Baseline,
    BaselineCheck,
    ConfirmationRound,
    Repeatability,
    TrialResult,
    TrialState,
)
from sweeper.runs.directory import RunDirectory
from sweeper.server.failures import ADVICE, Remedy
from sweeper.space import Candidate
from sweeper.storage.stored_trial import label, speedups_json
from sweeper.study.baseline_arm import TAG as BASELINE
from sweeper.study.baseline_arm import baseline_check
from sweeper.study.surroundings import NO_CANDIDATE, Servers
from sweeper.trial.order import TrialOrder, TrialPlan

Finalists = Mapping[int, Candidate]
"""Candidates by the number of their trial."""


class Confirmation:
    """Runs rounds; ``tick`` is told what it waits for, and how many launches of the round are left with that."""

    def __init__(
        self, plan: TrialPlan, servers: Servers, run: RunDirectory, tick: Callable[[str, int], None]
    ) -> None:
        self.plan, self.servers, self.run, self.tick = plan, servers, run, tick
        self.loads = plan.study.confirmed_loads

    def round(
        self, number: int, baseline: Baseline, finalists: Finalists
    ) -> tuple[ConfirmationRound | None, BaselineCheck]:
        """One launch of the baseline and of each finalist on the same server; None where a fault of it spoiled that.

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
            what = TrialOrder(candidate, self.loads, baseline.outputs, repeats=baseline.repeatability)
            stage = f"confirming, round {number}: {candidate.effective} ({turn} of {len(order)})"
            wait = partial(self.tick, stage, len(order) - turn + 1)
            results[name] = self._measure(f"confirm-{number}-{name}", what, server, wait)
            server = server or results[name].server
        plain = results.pop(BASELINE)
        check = baseline_check(self.plan, baseline, plain, f"confirmation {number}")
        if plain.record.failure or any(_spoiled(result, plain) for result in results.values()):
            return None, check
        numbers = dict(zip(trials, finalists, strict=True))
        done = ConfirmationRound(
            number,
            plain.server,
            tuple(order),
            plain.record,
            {numbers[name]: result.record for name, result in results.items()},
            {
                numbers[name]: speedups(result, plain, baseline.repeatability)
                for name, result in results.items()
            },
            {
                numbers[name]: f"{failure.kind.value}: {failure.message}"
                for name, result in results.items()
                if (failure := result.record.failure)
            },
        )
        return done, check

    def _measure(
        self, tag: str, order: TrialOrder, server: str | None, tick: Callable[[], None]
    ) -> TrialResult:
        """On the same server as before, or on any other where that is gone."""
        while not (idle := self.servers.idle()):
            self.servers.wait(1.0)
            tick()
        self.servers.start(tag, order, server if server in idle else idle[0])
        finished: list[tuple[str, TrialResult]] = []
        while not finished:
            finished = self.servers.wait(1.0)
            tick()
        result = finished[0][1]
        self.run.write_result(tag, result)
        if result.record.state is TrialState.INTERRUPTED:
            raise KeyboardInterrupt
        return result


def speedups(
    ours: TrialResult, plain: TrialResult, repeats: Repeatability
) -> dict[str, tuple[float, float, float]]:
    """By load's name, over the baseline of the same round; nothing for a trial that failed."""
    if ours.record.failure:
        return {}
    points = ours.record.load_points
    return speedups_json({p.load: speedup_at(p.load, ours.requests, plain.requests, repeats) for p in points})


def _spoiled(ours: TrialResult, plain: TrialResult) -> bool:
    """Whether the two do not compare, by no fault of the config."""
    lost = ours.record.failure is not None and ADVICE[ours.record.failure.kind].remedy is Remedy.ELSEWHERE
    return lost or ours.server != plain.server
