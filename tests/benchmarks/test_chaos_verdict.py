"""Every check of the chaos test can fail: each mutation of a sound ending is found, and by its own words."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from benchmarks.chaos.evidence import ACTOR, DRIVER, RAYLET, SERVER, Evidence, Strike, TrialSeen
from benchmarks.chaos.verdict import problems

NOON = datetime(2026, 1, 1, 12)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def trial(number: int, config: str, state: str = "COMPLETE", failure: str = "", **more: object) -> TrialSeen:
    seen = TrialSeen(number, config, state, at(10 * number), at(10 * number + 9), failure=failure)
    return replace(seen, **more)  # type: ignore[arg-type]


SOUND = Evidence(
    wanted=frozenset({"measured", "killed", "lost twice", "broken", "cut off"}),
    broken={"broken": "MEASUREMENT"},
    trials=(
        trial(0, "measured"),
        trial(1, "killed", "FAIL", "CRASH"),
        trial(2, "lost twice", "FAIL", "LOST", requeued=True),
        trial(3, "lost twice", "FAIL", "LOST"),
        trial(4, "broken", "FAIL", "MEASUREMENT"),
        trial(5, "cut off", "FAIL", requeued=True),
        trial(6, "cut off"),
    ),
    strikes=(
        Strike(at(15), SERVER, ("killed",)),
        Strike(at(25), ACTOR, ("lost twice",)),
        Strike(at(35), RAYLET, ("other", "lost twice")),
        Strike(at(55), DRIVER),
    ),
    announced=frozenset({0, 6}),
    journals=frozenset({0, 6}),
)


def with_trial(changed: TrialSeen) -> Evidence:
    return replace(SOUND, trials=tuple(changed if t.number == changed.number else t for t in SOUND.trials))


def test_a_sound_ending_has_no_problem() -> None:
    assert problems(SOUND) == []


def test_an_actor_may_die_before_it_has_launched_its_trials_server() -> None:
    early = Strike(at(22), ACTOR, ("kept from the trial before",))
    assert problems(replace(SOUND, strikes=(early, *SOUND.strikes[:1], *SOUND.strikes[2:]))) == []


@pytest.mark.parametrize(
    ("mutated", "said"),
    [
        (replace(SOUND, wanted=SOUND.wanted | {"forgotten"}), "forgotten was neither measured nor failed"),
        (replace(SOUND, wanted=SOUND.wanted - {"killed"}), "killed is none of the study's"),
        (with_trial(trial(0, "measured", "RUNNING")), "trial 0 is RUNNING at the end"),
        (replace(SOUND, trials=(*SOUND.trials, trial(7, "measured"))), "measured counts 2 times"),
        (
            replace(SOUND, trials=(*SOUND.trials, trial(7, "measured", "FAIL", requeued=True))),
            "measured was measured in trial 0, and launched again as 7",
        ),
        (with_trial(trial(0, "measured", "FAIL", "CRASH")), "trial 0 (measured) failed as CRASH"),
        (with_trial(trial(1, "killed", "FAIL", "HANG")), "trial 1 (killed) failed as HANG"),
        (with_trial(trial(1, "killed", "FAIL", "LOST")), "trial 1 (killed) failed as LOST"),
        (replace(SOUND, strikes=SOUND.strikes[1:]), "trial 1 (killed) failed as CRASH"),
        (
            replace(SOUND, strikes=SOUND.strikes[:1] + SOUND.strikes[2:]),
            "trial 3 (lost twice) failed as LOST",
        ),
        (
            replace(
                SOUND, strikes=(Strike(at(27), ACTOR, ("other",)), *SOUND.strikes[:1], *SOUND.strikes[2:])
            ),
            "trial 3 (lost twice) failed as LOST",
        ),
        (
            replace(SOUND, strikes=(Strike(at(90), SERVER, ("killed",)), *SOUND.strikes[1:])),
            "trial 1 (killed) failed as CRASH",
        ),
        (with_trial(trial(4, "broken")), "broken cannot be measured, and trial 4 says that it was"),
        (replace(SOUND, announced=frozenset({0, 1})), "trial 1 was announced as done and is not complete"),
        (replace(SOUND, journals=frozenset({5})), "trial 5 has a result that is not in the storage"),
        (
            with_trial(trial(6, "cut off", missing=("logs/trial-0006.log",))),
            "trial 6 is complete without its logs/trial-0006.log",
        ),
        (replace(SOUND, processes=("99 python -m sglang.launch_server",)), "process left: 99"),
        (replace(SOUND, ports=(12_000,)), "port still taken: 12000"),
        (replace(SOUND, files=("t/sweeper-actor-9-x",)), "file left: t/sweeper-actor-9-x"),
        (replace(SOUND, locks=("runs/chaos/driver.lock",)), "lock still held: runs/chaos/driver.lock"),
        (replace(SOUND, given_up=("exit code 2: error",)), "a driver ended that nobody killed: exit code 2"),
    ],
)
def test_what_is_wrong_is_found(mutated: Evidence, said: str) -> None:
    found = problems(mutated)
    assert any(said in problem for problem in found), found
