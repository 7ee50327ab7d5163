"""Prompts are dealt out so that no load shares one with another, each has its least, and the rest is spread evenly."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.config import StudyConfig
from sweeper.records import Load
from sweeper.workload.conversation import Prompt, TooFewPromptsError
from sweeper.workload.dealing import Hands, deal, least_conversations, most_conversations, warmup_prompts


def study(
    temperature: float = 0.0, measurement: dict[str, int] | None = None, **workload: object
) -> StudyConfig:
    return StudyConfig.model_validate(
        {
            "study": "s",
            "engine": {"model": "m", "device": "cpu"},
            "space": {"grids": [{"algorithm": "NGRAM", "num_draft_tokens": 4}]},
            "workload": {"prompts": "p.jsonl", "temperature": temperature, "concurrency": [1, 4], **workload},
            "measurement": {"min_requests": 8, "rounds": 2, "max_requests": 16, **(measurement or {})},
        }
    )


def singles(count: int, tokens: int | None = None) -> list[Prompt]:
    return [Prompt(f"{tokens}-{i}", f"{tokens}-{i}", input_tokens=tokens) for i in range(count)]


def requests(hand: tuple[Prompt, ...]) -> int:
    return sum(prompt.requests for prompt in hand)


def dealt(hands: Hands) -> list[str]:
    """Ids of everything that is sent; the longest warm-up of a bucket holds the shorter ones."""
    warmups = {
        load.bucket: hand for load, hand in sorted(hands.warmup.items(), key=lambda item: len(item[1]))
    }
    groups = [*hands.by_load.values(), *warmups.values(), hands.quality]
    return [prompt.id for hand in groups for prompt in hand]


prompts = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 300)), max_size=200).map(
    lambda items: [
        Prompt(str(i), str(i), ("more",) * (turns - 1), input_tokens=tokens)
        for i, (turns, tokens) in enumerate(items)
    ]
)
studies = st.builds(
    study,
    temperature=st.sampled_from([0.0, 0.7]),
    concurrency=st.sampled_from([[1], [1, 4], [2, 8, 16]]),
    request_rates=st.sampled_from([[], [1.5]]),
    input_lengths=st.sampled_from([[], [[1, 100], [150, 300]]]),
    measurement=st.fixed_dictionaries(
        {"min_requests": st.integers(4, 12), "max_requests": st.integers(4, 40)}
    ),
)


@settings(max_examples=150, deadline=None)
@given(studies, prompts)
def test_whatever_is_dealt_keeps_the_promises(config: StudyConfig, deck: list[Prompt]) -> None:
    try:
        hands = deal(config, deck)
    except TooFewPromptsError:
        longest = max((prompt.requests for prompt in deck), default=1)
        assert config.workload.input_lengths or len(deck) < longest * most_conversations(config)
        return
    assert len(dealt(hands)) == len(set(dealt(hands)))
    assert hands == deal(config, deck)
    assert tuple(hands.by_load) == tuple(hands.warmup) == config.workload.loads
    for load, hand in hands.by_load.items():
        assert requests(hand) >= config.measurement.least_requests(load)
        assert len(hand) >= least_conversations(load)
        assert len(hands.warmup[load]) == warmup_prompts(load)
        if load.bucket:
            low, high = map(int, load.bucket.split("-"))
            assert all(low <= (p.input_tokens or 0) <= high for p in (*hand, *hands.warmup[load]))
    assert requests(hands.quality) >= (16 if config.workload.temperature else 0)
    assert bool(hands.quality) == (config.workload.temperature > 0)


def test_what_is_left_over_is_dealt_evenly_up_to_the_most() -> None:
    config = study(measurement={"min_requests": 4, "max_requests": 40})
    least = 4 + 8 + 4  # two loads and their warm-up
    hands = deal(config, singles(least + 20))
    assert [len(hand) for hand in hands.by_load.values()] == [16, 16]
    hands = deal(config, singles(1000))
    assert [len(hand) for hand in hands.by_load.values()] == [40, 40]


def test_the_order_is_that_of_the_source() -> None:
    hands = deal(study(concurrency=[1]), singles(20))
    assert [prompt.id for prompt in hands.warmup[Load(1)]] == ["None-0", "None-1"]
    assert [prompt.id for prompt in hands.by_load[Load(1)]] == [f"None-{i}" for i in range(2, 18)]


def test_long_conversations_do_not_leave_workers_idle() -> None:
    config = study(concurrency=[8], measurement={"min_requests": 8, "max_requests": 16})
    talks = [Prompt(str(i), str(i), ("more",) * 19) for i in range(100)]
    assert len(deal(config, talks).by_load[Load(8)]) == 2 * 8


def test_loads_of_a_bucket_share_a_warm_up_that_is_never_measured() -> None:
    hands = deal(study(input_lengths=[[1, 10], [11, 20]]), singles(60, 5) + singles(60, 15))
    short = hands.warmup[Load(4, bucket="1-10")]
    assert hands.warmup[Load(1, bucket="1-10")] == short[:2]
    assert not set(short) & set(hands.warmup[Load(4, bucket="11-20")])


def test_both_ends_of_a_bucket_belong_to_it() -> None:
    deck = [*singles(12, 10), *singles(12, 20), *singles(5, 9), *singles(5, 21)]
    hands = deal(study(input_lengths=[[10, 20]]), deck)
    lengths = {prompt.input_tokens for hand in hands.by_load.values() for prompt in hand}
    assert lengths == {10, 20}


def test_an_open_loop_gets_prompts_too() -> None:
    hands = deal(study(request_rates=[2.5]), singles(100))
    assert len(hands.by_load[Load(rate=2.5)]) == 16
    assert len(hands.warmup[Load(rate=2.5)]) == 2


def test_too_few_prompts_are_an_error_with_numbers() -> None:
    with pytest.raises(
        TooFewPromptsError,
        match=r"p.jsonl: 19 prompts are too few: no prompt is sent twice, and c=1 needs 8, c=4 needs 8, the warm-up 4; "
        "add prompts, or lower measurement.min_requests",
    ):
        deal(study(), singles(19))
    deal(study(), singles(20))
    with pytest.raises(
        TooFewPromptsError, match="c=4 needs 8, the warm-up 4, the comparison of outputs 16; add"
    ):
        deal(study(temperature=0.7), singles(35))
    deal(study(temperature=0.7), singles(36))


def test_too_few_prompts_in_a_bucket_tell_what_the_source_has() -> None:
    config = study(input_lengths=[[1, 10], [11, 20]])
    with pytest.raises(
        TooFewPromptsError,
        match=r"3 prompts of 11-20 input tokens are too few: .*c=1 in=11-20 needs 8.*; the source "
        r"\(of 5 to 99 tokens\) has 60 of 1-10, 3 of 11-20, 2 outside; .* or choose other workload.input_lengths",
    ):
        deal(config, [*singles(60, 5), *singles(3, 15), *singles(2, 99)])


def test_few_conversations_tell_their_requests() -> None:
    talks = [Prompt(str(i), str(i), ("more",)) for i in range(7)]
    with pytest.raises(TooFewPromptsError, match="7 prompts with 14 requests are too few"):
        deal(study(), talks)
