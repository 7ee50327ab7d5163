"""Who is measured again, and who wins."""

from dataclasses import replace

from sweeper.analysis.verdict import (
    Contender,
    confirmed_speedups,
    finalists,
    left_open,
    over_objective,
    winner,
)
from sweeper.records import ConfirmationRound, Interval, Load, TrialRecord, TrialState
from sweeper.speculation import NO_SPECULATION, SpeculationConfig


def contender(number: int, value: float, steps: int = 3, reach: float = 0.05) -> Contender:
    config = SpeculationConfig("EAGLE3", "a", steps, 1, steps + 1)
    return Contender(number, config, Interval(value, value - reach, value + reach))


def test_finalists_are_the_best_that_may_pay() -> None:
    field = [contender(0, 1.2), contender(1, 0.9), contender(2, 1.5), contender(3, 1.3)]
    assert [c.number for c in finalists(field, 2)] == [2, 3]
    assert [c.number for c in finalists([contender(1, 0.9)], 2)] == []


def test_within_a_percent_the_cheaper_config_wins() -> None:
    dear, cheap = contender(0, 1.500, steps=7), contender(1, 1.490, steps=3)
    assert winner([dear, cheap], 0.01) == cheap
    assert winner([dear, contender(1, 1.48, steps=3)], 0.01) == dear


def test_a_speedup_that_may_be_none_does_not_win() -> None:
    assert winner([contender(0, 1.04)], 0.01) is None
    assert winner([], 0.01) is None


def round_of(number: int, speedups: dict[int, dict[str, tuple[float, float, float]]]) -> ConfirmationRound:
    record = TrialRecord(NO_SPECULATION, NO_SPECULATION, TrialState.COMPLETE)
    return ConfirmationRound(number, "gpu-1", ("baseline",), record, {}, speedups)


def test_confirmed_speedups_are_pooled_over_the_rounds() -> None:
    rounds = [round_of(1, {3: {"c=1": (1.0, 0.01, 9)}}), round_of(2, {3: {"c=1": (1.44, 0.01, 9)}})]
    found = confirmed_speedups(rounds)[3][Load(1)]
    assert round(found.value, 6) == 1.2
    assert found.freedom == 1  # two launches say little of how much launches differ
    assert found.interval.low < 1
    assert 4 not in confirmed_speedups(rounds)


def test_how_much_launches_differ_is_learnt_from_all_finalists() -> None:
    rounds = [
        round_of(1, {3: {"c=1": (1.30, 0.001, 9)}, 4: {"c=1": (1.30, 0.001, 9)}}),
        round_of(2, {3: {"c=1": (1.33, 0.001, 9)}, 4: {"c=1": (1.30, 0.001, 9)}}),
    ]
    both = confirmed_speedups(rounds)
    assert both[3][Load(1)].freedom == both[4][Load(1)].freedom == 2
    assert both[3][Load(1)].error == both[4][Load(1)].error > 0.001


def test_a_trial_that_failed_in_a_round_is_not_confirmed() -> None:
    failed = replace(round_of(2, {3: {}}), failures={3: "CRASH: planted"})
    assert confirmed_speedups([round_of(1, {3: {"c=1": (1.3, 0.01, 9)}}), failed]) == {}
    assert over_objective({}, [Load(1)]) is None


def test_two_launches_that_differ_leave_it_open_and_the_third_may_settle_it() -> None:
    """ln 1.4 and ln 1.2, one degree of freedom: 1.296 [0.49, 3.45]. A third of 1.3: 1.297 [1.07, 1.57]."""
    rounds = [round_of(n, {3: {"c=1": (value, 0.001, 99)}}) for n, value in enumerate([1.4, 1.2, 1.3], 1)]
    assert left_open(rounds[:2], [3], [Load(1)])
    assert not left_open(rounds, [3], [Load(1)])


def test_what_looks_no_faster_or_surely_is_leaves_nothing_open() -> None:
    slower = [round_of(n, {3: {"c=1": (value, 0.001, 99)}}) for n, value in enumerate([0.8, 1.0], 1)]
    assert not left_open(slower, [3], [Load(1)])
    assert not left_open([round_of(1, {3: {"c=1": (1.3, 0.001, 99)}})], [3], [Load(1)])
    assert not left_open([], [3], [Load(1)])
    beside = [round_of(1, {3: {"c=1": (1.3, 0.01, 99)}, 4: {"c=1": (1.01, 0.1, 99)}})]
    assert left_open(beside, [4], [Load(1)])
    assert not left_open(beside, [3, 4], [Load(1)])
