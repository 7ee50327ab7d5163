"""When outputs are called lossy, and when they are not."""

import pytest

from sweeper.records import Divergence, OutputComparison, TrialRecord, TrialState
from sweeper.speculation import NO_SPECULATION
from sweeper.trial.quality import BadOutputError, first_difference, lossy, require_sane


def record(comparison: OutputComparison | None = None, **fields: object) -> TrialRecord:
    return TrialRecord(
        NO_SPECULATION,
        NO_SPECULATION,
        TrialState.COMPLETE,
        comparison=comparison,
        **fields,  # type: ignore[arg-type]
    )


def compared(*gaps: float | None, of: int = 100) -> OutputComparison:
    divergences = tuple(Divergence(f"p{i}", 5, gap) for i, gap in enumerate(gaps))
    return OutputComparison(of, of - len(gaps), divergences, near_tie=0.25)


def test_equal_outputs_and_near_ties_are_lossless() -> None:
    assert lossy(record(compared()), None) == ()
    assert lossy(record(compared(0.1, 0.2, 0.0)), None) == ()
    assert lossy(record(None), None) == ()


def test_one_difference_where_the_server_was_sure_is_enough() -> None:
    (reason,) = lossy(record(compared(0.1, 3.0)), None)
    assert "1 of 100 outputs leave the baseline's where the server was sure" in reason
    assert lossy(record(compared(3.0)), compared())


def test_a_plain_server_that_differs_from_itself_is_the_noise_floor() -> None:
    floor = compared(*[3.0] * 5)
    assert lossy(record(compared(*[3.0] * 6)), floor) == ()
    assert lossy(record(compared(*[3.0] * 30)), floor)


def test_where_nothing_is_known_of_the_certainty_the_number_speaks() -> None:
    assert lossy(record(compared(None)), None) == ()
    assert lossy(record(compared(None)), compared()) == ()  # one re-ask that went another way is no evidence
    assert lossy(record(compared(*[None] * 60)), None)
    assert lossy(record(compared(*[None] * 5)), compared(*[None] * 4)) == ()
    (reason,) = lossy(record(compared(*[None] * 60)), compared(*[None] * 4))
    assert "more than the plain server differs from itself" in reason


def test_thresholds_and_simulated_acceptance_are_lossy_whatever_the_outputs_say() -> None:
    (reason,) = lossy(record(compared(), engine={"speculative_accept_threshold_single": 0.001}), None)
    assert "speculative_accept_threshold_single is 0.001" in reason
    assert lossy(record(compared(), engine={"speculative_accept_threshold_single": 1.0}), None) == ()
    (reason,) = lossy(record(compared(), simulated="SGLANG_SIMULATE_ACC_LEN=3"), None)
    assert "simulated" in reason


def test_outputs_that_are_no_outputs() -> None:
    require_sane({"a": (1, 2, 3, 4, 5, 6, 7, 8, 9), "b": (1, 1, 1, 1, 1, 1, 1, 1, 1)})
    with pytest.raises(BadOutputError, match="2 of 2 outputs are empty"):
        require_sane({"a": (), "b": ()})
    with pytest.raises(BadOutputError, match="2 of 3 outputs repeat one token, the first of them id 0"):
        require_sane({"a": (5, *[0] * 9), "b": (0,) * 9, "c": tuple(range(9))})


def test_the_first_difference() -> None:
    assert first_difference((1, 2, 3), (1, 2, 3)) is None
    assert first_difference((1, 2, 3), (1, 9, 3)) == 1
    assert first_difference((1, 2), (1, 2, 3)) == 2


def test_nothing_compared_is_neither_equal_nor_different() -> None:
    assert compared(of=0).equal is None
    assert compared(of=4).equal is True
