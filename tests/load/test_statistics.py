"""Load points from requests: what they count, how sure they are, and what they complain of."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from sweeper.breakeven import Arm, speedup
from sweeper.load.statistics import (
    Expectation,
    FailedLoadError,
    LoadData,
    after_the_end,
    load_point,
    precise,
    rate_estimate,
)
from sweeper.load.window import steady_window, stretches, within
from sweeper.records import EndedBy, Load, LoadPoint, RequestRecord
from tests.load.simulated import Engine, requests

PLAIN, CHAIN = Expectation(speculates=False), Expectation(speculates=True, most_per_step=4)
LOAD = Load(4)


def point(records: list[RequestRecord], expected: Expectation = PLAIN, load: Load = LOAD) -> LoadPoint:
    return load_point(LoadData(load, records, EndedBy.REQUESTS), expected)


def test_without_speculation_the_accept_length_is_one_and_a_step_gives_a_token() -> None:
    found = point(requests(Engine(mood=0), 32, seed=1))
    assert found.accept_length.value == 1
    assert found.step_time_s == pytest.approx(0.02)
    assert found.output_tok_s.value == pytest.approx(4 / 0.02, rel=0.01)
    assert found.tpot_s.p50 == pytest.approx(0.02)
    assert found.requests == 32
    assert not found.unstable
    assert found.notes == ()


def test_with_speculation_tokens_rounds_and_histogram_agree() -> None:
    records = requests(Engine(chain=3), 32, seed=1)
    found = point(records, CHAIN)
    rounds = sum(r.verify_rounds or 0 for r in records)
    assert sum(found.histogram) == rounds
    assert found.accept_length.value == pytest.approx(32 * 47 / rounds)
    assert 1 < found.accept_length.low < found.accept_length.value < found.accept_length.high < 4


def test_ramp_and_drain_lie_outside_the_window() -> None:
    records = requests(Engine(chain=3, mood=0), 32, seed=1)
    start, end = steady_window(records, LOAD)
    assert start == min(r.done_s for r in records)
    for moment in np.linspace(start + 1e-6, end - 1e-6, 50):
        assert sum(r.sent_s <= moment <= r.done_s for r in records) == 4
    assert end < max(r.done_s for r in records)
    tokens = sum(within(r, (start, end))[0] for r in records)
    assert point(records, CHAIN).output_tok_s.value == pytest.approx(tokens / (end - start))


def test_a_worker_that_ends_before_the_others_ends_the_window() -> None:
    """Conversations: the deck is used up while some workers still have further turns to send."""
    records = requests(Engine(concurrency=2, mood=0), 4, seed=1)
    last = max(r.done_s for r in records)
    later = [replace(records[0], prompt=f"p0#{i}", sent_s=last + i - 1, done_s=last + i) for i in (1, 2, 3)]
    assert steady_window([*records, *later], Load(2))[1] == pytest.approx(last)


def test_an_open_loop_counts_from_the_first_to_the_last_request_sent() -> None:
    load = Load(rate=2.0)
    records = [replace(r, load=str(load)) for r in requests(Engine(concurrency=1), 8, seed=1)]
    assert steady_window(records, load) == (records[0].sent_s, records[-1].sent_s)


@pytest.mark.parametrize("chain", [0, 3])
def test_forty_measurements_hold_the_long_run_value_thirty_four_times(chain: int) -> None:
    engine = Engine(chain=chain)
    estimates = []
    for i in range(40):
        records = requests(engine, 24, seed=i, prompts=1000 * i)
        estimates.append(rate_estimate(stretches(records, LOAD)))
    # Time-weighted, as one long measurement would be.
    truth = len(estimates) / sum(1 / e.value for e in estimates)
    held = sum(e.interval.low <= truth <= e.interval.high for e in estimates)
    assert held >= 34
    assert np.median([e.relative_half_width for e in estimates]) < 0.15


@pytest.mark.parametrize("chain", [0, 3])
def test_identical_configs_are_not_called_different(chain: int) -> None:
    engine = Engine(chain=chain)
    different = 0
    for i in range(60):
        arms = [Arm(LOAD, requests(engine, 48, seed=2 * i + k, prompts=1000 * i)) for k in (0, 1)]
        found = speedup(*arms).interval
        different += found.low > 1 or found.high < 1
    assert different <= 5


def test_a_real_difference_is_seen_and_its_prompts_cancel() -> None:
    slow = Arm(LOAD, requests(Engine(chain=3, step_s=0.022), 48, seed=1))
    fast = Arm(LOAD, requests(Engine(chain=3, step_s=0.020), 48, seed=2))
    found = speedup(fast, slow).interval
    assert found.low > 1
    assert found.value == pytest.approx(1.1, rel=0.05)
    # The rates alone scatter by their prompts' acceptance and could not tell.
    assert (
        point(list(fast.requests), CHAIN).output_tok_s.low
        < point(list(slow.requests), CHAIN).output_tok_s.high
    )


def test_arms_of_different_length_compare_on_the_prompts_they_share() -> None:
    long = Arm(LOAD, requests(Engine(chain=3, mood=0), 48, seed=1))
    short = Arm(LOAD, requests(Engine(chain=3, mood=0), 32, seed=2))
    assert speedup(short, long).value == pytest.approx(1, rel=0.03)
    with pytest.raises(ValueError, match="no prompt in common at c=4"):
        speedup(short, Arm(LOAD, requests(Engine(), 8, seed=1, prompts=500)))


def test_open_loops_compare_latencies() -> None:
    load = Load(rate=2.0)
    arms = [
        Arm(load, [replace(r, load=str(load)) for r in requests(Engine(concurrency=1, step_s=s), 16, seed=1)])
        for s in (0.01, 0.02)
    ]
    assert speedup(*arms).value == pytest.approx(2)


@pytest.mark.parametrize("chain", [0, 3])
def test_a_server_that_slows_by_a_fifth_halfway_is_unstable(chain: int) -> None:
    engine = Engine(chain=chain, mood=0.05)
    steady = requests(engine, 48, seed=1)
    halfway = max(r.done_s for r in steady) / 2
    slowing = requests(replace(engine, slow_from=halfway, slowness=1.25), 48, seed=1)
    expected = CHAIN if chain else PLAIN
    assert not point(steady, expected).unstable
    found = point(slowing, expected)
    assert found.unstable
    assert found.drift.value == pytest.approx(0.8, abs=0.08)


def test_a_steady_server_is_rarely_called_unstable() -> None:
    called = sum(
        point(requests(Engine(chain=3), 32, seed=i, prompts=100 * i), CHAIN).unstable for i in range(40)
    )
    assert called <= 2


def test_merged_chunks_are_named_and_change_no_rate() -> None:
    records = requests(Engine(), 32, seed=1)
    merged = [
        replace(r, arrival_s=(r.arrival_s[0], *r.arrival_s[6::6]), arrival_tokens=_gathered(r, 6))
        for r in records
    ]
    assert [sum(r.arrival_tokens) for r in merged] == [48] * 32
    found = point(merged)
    assert "MERGED CHUNKS" in found.notes[0]
    assert found.output_tok_s.value == pytest.approx(point(records).output_tok_s.value, rel=0.05)
    assert found.step_time_s == pytest.approx(point(records).step_time_s)


def _gathered(record: RequestRecord, size: int) -> tuple[int, ...]:
    """First token alone, then ``size`` at a time; the last chunk takes the rest."""
    chunks = len(record.arrival_tokens[size::size])
    counts = [1] + [size] * chunks
    counts[-1] += record.completion_tokens - sum(counts)
    return tuple(counts)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_answers_that_came_in_one_piece_are_named_and_time_no_step(share: float) -> None:
    """So reads a client that got no processor for longer than an answer takes."""
    records = requests(Engine(), 32, seed=1)
    starved = [
        replace(r, first_token_s=r.done_s, arrival_s=(r.done_s,) * len(r.arrival_s))
        for r in records[: int(32 * share)]
    ]
    found = point(starved + records[int(32 * share) :])
    assert f"ONE PIECE: {share:.0%}" in found.notes[0]
    true = point(records)
    if share < 1:
        assert found.step_time_s == pytest.approx(true.step_time_s, rel=0.1)
    else:
        assert true.step_time_s < found.step_time_s < 1.5 * true.step_time_s


def test_text_after_the_end_is_named_with_its_share() -> None:
    (note,) = after_the_end({"a": (5, 2, 7, 7), "b": (5, 6, 7, 8)}, frozenset({2}))
    assert "25% of the output tokens come after an end of sequence" in note
    assert after_the_end({"a": (5, 6, 2)}, frozenset({2})) == ()


def test_a_failed_request_fails_the_load() -> None:
    records = requests(Engine(), 8, seed=1)
    records[3] = replace(records[3], error="HTTP 500: planted")
    with pytest.raises(FailedLoadError, match="1 of 8 requests failed at c=4; the first: HTTP 500"):
        point(records)


def test_cached_prompts_fail_the_load_unless_the_workload_wants_them() -> None:
    records = requests(Engine(), 8, seed=1)
    records[3] = replace(records[3], cached_tokens=6)
    with pytest.raises(FailedLoadError, match=r"from the prefix cache.*6 of 8 tokens of prompt 'p3'"):
        point(records)
    wanted = point(records, replace(PLAIN, prefix_cache=True))
    assert wanted.cached_share == pytest.approx(6 / 64)


def test_missing_counters_fail_the_load() -> None:
    with pytest.raises(FailedLoadError, match="8 requests came without speculation counters"):
        point(requests(Engine(), 8, seed=1), CHAIN)


def test_a_rate_is_precise_only_after_some_time_and_when_it_is() -> None:
    calm, moody = Engine(mood=0.01), Engine(mood=0.4)
    assert precise(requests(calm, 32, seed=1), LOAD, 0.03)
    assert not precise(requests(calm, 8, seed=1), LOAD, 0.03)
    assert not precise(requests(moody, 32, seed=1), LOAD, 0.03)
    broken = requests(calm, 32, seed=1)
    assert not precise([*broken[:-1], replace(broken[-1], error="x")], LOAD, 0.03)


def test_a_load_point_can_be_stored_as_json() -> None:
    found = point(requests(Engine(concurrency=1), 4, seed=1), load=Load(1))
    assert math.isfinite(found.drift.high)
    assert math.isfinite(found.output_tok_s.high)
