"""What must be true at the end of a study, whatever was killed on the way. Pure functions of the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta

from benchmarks.chaos.evidence import ACTOR, RAYLET, SERVER, Evidence, Strike, TrialSeen
from sweeper.study.ending import MAX_ATTEMPTS

COMPLETE, FAIL = "COMPLETE", "FAIL"
CAUSES = {"CRASH": (SERVER,), "LOST": (ACTOR, RAYLET)}
"""Whose death a failure class stands for."""

SLACK = timedelta(seconds=2)
"""Between a kill and the moment at which it is noted."""

STARTING = timedelta(seconds=5)
"""How long an actor has no server of its trial at first: it ends the one before, which it had kept, and launches."""


def problems(seen: Evidence) -> list[str]:
    """Everything that is wrong, in words; empty: nothing is."""
    return [problem for check in CHECKS for problem in check(seen)]


def final(seen: Evidence) -> list[TrialSeen]:
    """The trials that stand for their configs."""
    return [trial for trial in seen.trials if not trial.requeued]


def every_config_has_ended(seen: Evidence) -> Iterator[str]:
    ended = {trial.config for trial in final(seen) if trial.state in (COMPLETE, FAIL)}
    yield from (f"{config} was neither measured nor failed" for config in sorted(seen.wanted - ended))
    yield from (f"{config} is none of the study's" for config in sorted(ended - seen.wanted))
    yield from (
        f"trial {trial.number} is {trial.state} at the end"
        for trial in seen.trials
        if trial.state not in (COMPLETE, FAIL)
    )


def no_config_counts_twice(seen: Evidence) -> Iterator[str]:
    counts = Counter(trial.config for trial in final(seen))
    yield from (f"{config} counts {count} times" for config, count in counts.items() if count > 1)
    done = {trial.config: trial.number for trial in seen.trials if trial.state == COMPLETE}
    for trial in seen.trials:
        if trial.number > done.get(trial.config, trial.number):
            yield f"{trial.config} was measured in trial {done[trial.config]}, and launched again as {trial.number}"


def every_failure_has_its_cause(seen: Evidence) -> Iterator[str]:
    for trial in final(seen):
        expected = seen.broken.get(trial.config)
        if trial.state == COMPLETE and expected:
            yield f"{trial.config} cannot be measured, and trial {trial.number} says that it was"
        if trial.state == FAIL and trial.failure != expected and not _explained(trial, seen):
            yield f"trial {trial.number} ({trial.config}) failed as {trial.failure or 'nothing'}, which nobody caused"


def _explained(trial: TrialSeen, seen: Evidence) -> bool:
    """Somebody killed what the class stands for, while each attempt ran that failed like this."""
    attempts = [
        other for other in seen.trials if other.config == trial.config and other.failure == trial.failure
    ]
    least = MAX_ATTEMPTS if trial.failure == "LOST" else 1
    return len(attempts) >= least and all(_struck(attempt, seen) for attempt in attempts)


def _struck(attempt: TrialSeen, seen: Evidence) -> bool:
    """Its server died of a kill; or its actor did before there was a server of its own."""
    ended = attempt.ended or attempt.began
    return any(
        strike.victim in CAUSES.get(attempt.failure, ())
        and attempt.began - SLACK <= strike.at <= ended + SLACK
        and (
            attempt.config in strike.configs
            or (attempt.failure == "LOST" and _at_its_start(strike, attempt, seen))
        )
        for strike in seen.strikes
    )


def _at_its_start(strike: Strike, attempt: TrialSeen, seen: Evidence) -> bool:
    """Whether it may have hit the actor of an attempt that had no server yet: not if that ran another trial's."""
    elsewhere = strike.victim == ACTOR and any(
        other.number != attempt.number
        and other.config in strike.configs
        and other.began <= strike.at <= (other.ended or other.began)
        for other in seen.trials
    )
    return strike.at <= attempt.began + STARTING and not elsewhere


def no_result_is_lost(seen: Evidence) -> Iterator[str]:
    complete = {trial.number for trial in seen.trials if trial.state == COMPLETE}
    yield from (
        f"trial {n} was announced as done and is not complete" for n in sorted(seen.announced - complete)
    )
    yield from (
        f"trial {n} has a result that is not in the storage" for n in sorted(seen.journals - complete)
    )
    yield from (
        f"trial {trial.number} is complete without its {name}"
        for trial in seen.trials
        if trial.state == COMPLETE
        for name in trial.missing
    )


def nothing_is_left(seen: Evidence) -> Iterator[str]:
    yield from (f"process left: {process}" for process in seen.processes)
    yield from (f"port still taken: {port}" for port in seen.ports)
    yield from (f"file left: {file}" for file in seen.files)
    yield from (f"lock still held: {lock}" for lock in seen.locks)


def no_driver_gave_up(seen: Evidence) -> Iterator[str]:
    yield from (f"a driver ended that nobody killed: {said}" for said in seen.given_up)


CHECKS: tuple[Callable[[Evidence], Iterator[str]], ...] = (
    every_config_has_ended,
    no_config_counts_twice,
    every_failure_has_its_cause,
    no_result_is_lost,
    nothing_is_left,
    no_driver_gave_up,
)
