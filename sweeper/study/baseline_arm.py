"""The no-speculation arm of a study: taken from the cache or measured, and checked before and after the trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from sweeper.analysis.intervals import geometric_mean
from sweeper.baseline import BaselineCache, baseline_key, make_baseline
from sweeper.breakeven import speedup_at
from sweeper.errors import SweeperError
from sweeper.records import Baseline, BaselineCheck, OutputComparison, TrialResult, TrialState
from sweeper.runs.directory import RunDirectory
from sweeper.server.failures import ADVICE, Remedy, may_pass
from sweeper.study.ending import MAX_ATTEMPTS
from sweeper.study.surroundings import NO_CANDIDATE, Display, Servers
from sweeper.trial.order import TrialOrder, TrialPlan

TAG = "baseline"

MOST_LOST = 5
"""Nodes that the plain server may lose before the study ends."""


class BaselineArm:
    """Measures the plain server. ``tick`` is called while it waits; ``keep`` stores every check as it comes."""

    def __init__(
        self,
        plan: TrialPlan,
        servers: Servers,
        run: RunDirectory,
        display: Display,
        keep: Callable[[BaselineCheck], None],
        tick: Callable[[], None],
    ) -> None:
        self.plan, self.servers, self.run, self.display = plan, servers, run, display
        self.keep, self.tick = keep, tick
        self.config = plan.study
        self.cache = BaselineCache(self.config.baseline.cache_dir)
        self.equal: set[str] = set()
        """Servers that are as fast as the one of the baseline."""
        self._canaries = 0

    def get(self, settings: Mapping[str, Any], own: Baseline | None, remeasure: bool) -> Baseline:
        """The baseline for the servers' hardware: cached and still true, or measured.

        ``own`` is the one that finished trials of this study were compared with; a study never mixes two.

        Raises:
            SweeperError: ``own`` no longer holds or would be replaced, or the server fails without speculation.
        """
        if own and remeasure:
            raise SweeperError(
                f"study {self.config.study!r} has trials that were compared with its baseline of {own.measured_at}; "
                "a new baseline needs a new study: add --name"
            )
        cached = None if remeasure else own or self.cache.load(baseline_key(settings))
        if cached:
            check = self._first_check(cached)
            if not check.beyond_tolerance:
                self.display.baseline(cached, f"reused, {check} now")
                return cached
            if own:
                raise SweeperError(
                    f"study {self.config.study!r} cannot go on: its baseline drifted by {check}, more than "
                    "baseline.tolerance; start a new study with --name, or raise the tolerance"
                )
            self.display.checked(check, "the cached baseline no longer holds and is measured again")
        order = TrialOrder(NO_CANDIDATE, self.config.workload.loads, laps=self.config.baseline.laps)
        result = require_success(self._patiently(lambda: self._run(TAG, order, None)))
        baseline = make_baseline(settings, result)
        self.run.patience("baseline cache", lambda: self.cache.save(baseline))
        self.equal.add(result.server)
        self.display.baseline(baseline, "measured")
        return baseline

    def _first_check(self, cached: Baseline) -> BaselineCheck:
        """Whether a cached baseline still holds.

        Raises:
            SweeperError: the server fails without speculation.
        """

        def measure() -> TrialResult:
            server = self._idle()[0]
            return self._run(*self.canary(cached, "start", server), server)

        check = self.judge(cached, "start", self._patiently(measure))
        if check.drift is None:
            raise SweeperError(f"the server fails without speculation: {check.failure}")
        return check

    def _patiently(self, measure: Callable[[], TrialResult]) -> TrialResult:
        """A measurement, and another one where its node was lost or the server died of nobody knows what.

        No study should end for a single fault of a single server, nor for nodes that go one after another.
        """
        lost = died = 0
        while lost < MOST_LOST and died < MAX_ATTEMPTS:
            result = measure()
            failure = result.record.failure
            if failure is None or not may_pass(failure):
                break
            elsewhere = ADVICE[failure.kind].remedy is Remedy.ELSEWHERE
            lost, died = lost + elsewhere, died + (not elsewhere)
        return result

    def canary(self, baseline: Baseline, when: str, server: str) -> tuple[str, TrialOrder]:
        """Tag and order of a short measurement at the objective loads."""
        self._canaries += 1
        loads, outputs, repeats = self.config.objective_loads, baseline.outputs, baseline.repeatability
        order = TrialOrder(NO_CANDIDATE, loads, outputs, short=True, repeats=repeats)
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S")
        return f"{TAG}-{when}-{server}-{stamp}-{self._canaries}", order

    def check(self, baseline: Baseline, when: str, server: str) -> BaselineCheck:
        """A canary on an idle server, from its start to its verdict."""
        tag, order = self.canary(baseline, when, server)
        return self.judge(baseline, when, self._run(tag, order, server))

    def judge(self, baseline: Baseline, when: str, result: TrialResult) -> BaselineCheck:
        """What a canary says; a server that is as fast as the baseline's may run trials."""
        check = baseline_check(self.plan, baseline, result, when)
        self.keep(check)
        if not check.beyond_tolerance:
            self.equal.add(check.server)
        return check

    def turn_away(self, check: BaselineCheck) -> None:
        """Let go of a server that is not as fast as the one of the baseline, or fails where that came through."""
        if check.drift is None:  # which its node answers for, if it goes on like that
            if check.server in self.servers.idle():
                self.servers.dismiss(check.server)
            self.display.checked(check, "another server is asked for")
            return
        self.servers.release(check.server)
        self.display.checked(check, "trials there would not compare: this server is not used")

    def check_at_the_end(self, baseline: Baseline, seen: Sequence[BaselineCheck]) -> None:
        """Check every server that was not seen since the last trial; a baseline that drifted leaves the cache."""
        done = {check.server for check in seen}
        checks = [*seen, *(self.check(baseline, "end", name) for name in self._idle() if name not in done)]
        for check in checks:
            if check.beyond_tolerance and check.drift is not None:
                self.cache.forget(baseline.key)
                self.display.checked(check, "the trials of this study were not all measured on equal terms")

    def _idle(self) -> Sequence[str]:
        while not self.servers.idle():
            self.servers.wait(1.0)
            self.tick()
        return self.servers.idle()

    def _run(self, tag: str, order: TrialOrder, server: str | None) -> TrialResult:
        """One measurement while nothing else runs."""
        self.servers.start(tag, order, server)
        finished: list[tuple[str, TrialResult]] = []
        while not finished:
            finished = self.servers.wait(1.0)
            self.tick()
        result = finished[0][1]
        self.run.write_result(tag, result)
        return result


def require_success(result: TrialResult) -> TrialResult:
    """Raises KeyboardInterrupt for an interrupted measurement, SweeperError where the plain server fails."""
    record = result.record
    if record.state is TrialState.INTERRUPTED:
        raise KeyboardInterrupt
    if record.failure:
        tail = "\n".join(record.failure.log_tail[-15:])
        raise SweeperError(
            f"the server fails without speculation, so there is no baseline: {record.failure.kind.value}: "
            f"{record.failure.message}\n{tail}"
        )
    return result


def baseline_check(plan: TrialPlan, baseline: Baseline, now: TrialResult, when: str) -> BaselineCheck:
    """How fast the plain server is now, relative to the study's baseline on the same prompts.

    Raises:
        KeyboardInterrupt: it was interrupted.
    """
    checked_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
    try:
        require_success(now)
    except SweeperError as error:
        return BaselineCheck(when, now.server, None, True, str(error).splitlines()[0], checked_at=checked_at)
    speeds = [
        speedup_at(load, now.requests, baseline.requests, baseline.repeatability).interval
        for load in plan.study.objective_loads
    ]
    drift = geometric_mean(speeds)
    surely = drift.low > 1 or drift.high < 1
    return BaselineCheck(
        when=when,
        server=now.server,
        drift=drift,
        beyond_tolerance=surely and abs(drift.value - 1) > plan.study.baseline.tolerance,
        comparison=now.record.comparison,
        checked_at=checked_at,
    )


def noise_floor(checks: Sequence[BaselineCheck]) -> OutputComparison | None:
    """The baseline's outputs against its own, over all checks that held; None where they were never compared."""
    found = [check.comparison for check in checks if check.comparison and not check.beyond_tolerance]
    if not found:
        return None
    return replace(
        found[0],
        compared=sum(c.compared for c in found),
        identical=sum(c.identical for c in found),
        divergences=tuple(d for c in found for d in c.divergences),
    )
