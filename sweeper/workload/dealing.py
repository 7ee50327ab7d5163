"""Deals prompts out to the loads of a study: every load gets its own, the same ones for every config."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sweeper.config import StudyConfig
from sweeper.records import Load
from sweeper.workload.conversation import Prompt, TooFewPromptsError

WARMUP_PROMPTS = 2
ROUNDS = 2
"""Conversations per worker that a load needs at least, so that all workers are busy between first and last."""


RESERVE = 10


@dataclass(frozen=True)
class Hands:
    """The prompts of every load, of its warm-up, and of the comparison of outputs; none is in two of them."""

    by_load: Mapping[Load, tuple[Prompt, ...]]
    warmup: Mapping[Load, tuple[Prompt, ...]]
    quality: tuple[Prompt, ...]


def least_conversations(load: Load) -> int:
    return ROUNDS * max(load.concurrency, 1)


def warmup_prompts(load: Load) -> int:
    return max(WARMUP_PROMPTS, load.concurrency)


def quality_requests(study: StudyConfig) -> int:
    """Greedy requests besides the loads; at temperature 0 the loads' own outputs are compared."""
    return study.measurement.quality_requests if study.workload.temperature > 0 else 0


def most_conversations(study: StudyConfig) -> int:
    """More than this many conversations cannot be used, whatever their number of turns."""
    loads = study.workload.loads
    measured = sum(max(study.measurement.most_requests(load), least_conversations(load)) for load in loads)
    return measured + sum(map(warmup_prompts, loads)) + quality_requests(study)


def usable(study: StudyConfig) -> int:
    """Conversations to keep of a longer source: a reserve for those that turn out too long for the target."""
    return RESERVE * most_conversations(study)


def deal(study: StudyConfig, prompts: Sequence[Prompt]) -> Hands:
    """Deal in the given order: warm-ups, then the least that each load needs, then the comparison of outputs, and what
    is left to the loads in equal shares of what they can use.

    A conversation counts as many requests as it has turns. The loads of one input-length bucket share a warm-up.

    Raises:
        TooFewPromptsError: a bucket has too few prompts; the message says what each load needs.
    """
    table = _Table(study, prompts)
    warmups = {bucket: table.warmup(bucket) for bucket in table.pools}
    for load in study.workload.loads:
        table.deal_least(load)
    quality = table.quality()
    for bucket in table.pools:
        table.deal_rest(bucket)
    return Hands(
        {load: tuple(hand) for load, hand in table.hands.items()},
        {load: warmups[load.bucket][: warmup_prompts(load)] for load in study.workload.loads},
        quality,
    )


class _Table:
    """The prompts not yet dealt, by bucket, and the loads' hands."""

    def __init__(self, study: StudyConfig, prompts: Sequence[Prompt]) -> None:
        self.study = study
        self.hands: dict[Load, list[Prompt]] = {load: [] for load in study.workload.loads}
        self.pools = {
            load.bucket: deque(p for p in prompts if in_bucket(p, load.bucket)) for load in self.hands
        }
        self.had = {bucket: list(pool) for bucket, pool in self.pools.items()}
        self.lengths = [prompt.input_tokens for prompt in prompts if prompt.input_tokens is not None]

    def _loads(self, bucket: str) -> list[Load]:
        return [load for load in self.hands if load.bucket == bucket]

    def _take(self, bucket: str) -> Prompt:
        if not self.pools[bucket]:
            raise TooFewPromptsError(self._shortage(bucket))
        return self.pools[bucket].popleft()

    def warmup(self, bucket: str) -> tuple[Prompt, ...]:
        return tuple(self._take(bucket) for _ in range(max(map(warmup_prompts, self._loads(bucket)))))

    def deal_least(self, load: Load) -> None:
        hand = self.hands[load]
        while _requests(hand) < self.study.measurement.least_requests(load) or len(
            hand
        ) < least_conversations(load):
            hand.append(self._take(load.bucket))

    def quality(self) -> tuple[Prompt, ...]:
        """From the fullest bucket each time, so that no load is left with its least for it."""
        hand: list[Prompt] = []
        while _requests(hand) < quality_requests(self.study):
            hand.append(self._take(max(self.pools, key=lambda bucket: len(self.pools[bucket]))))
        return tuple(hand)

    def deal_rest(self, bucket: str) -> None:
        loads = self._loads(bucket)
        queue = [(self._share(load), place) for place, load in enumerate(loads)]
        heapq.heapify(queue)
        while queue and self.pools[bucket]:
            share, place = heapq.heappop(queue)
            if share < 1:
                self.hands[loads[place]].append(self._take(bucket))
                heapq.heappush(queue, (self._share(loads[place]), place))

    def _share(self, load: Load) -> float:
        """Requests dealt to a load, relative to the most it can use."""
        return _requests(self.hands[load]) / self.study.measurement.most_requests(load)

    def _shortage(self, bucket: str) -> str:
        """What is there, what each load needs, and what to do."""
        loads, had = self._loads(bucket), self.had[bucket]
        least = {str(load): self.study.measurement.least_requests(load) for load in loads}
        needs = [f"{name} needs {count}" for name, count in least.items()]
        needs.append(f"the warm-up {max(map(warmup_prompts, loads))}")
        compared = quality_requests(self.study)
        if compared:
            needs.append(f"the comparison of outputs {compared}{' of all buckets' if bucket else ''}")
        turns = f" with {_requests(had)} requests" if _requests(had) > len(had) else ""
        kind = f" of {bucket} input tokens" if bucket else ""
        return (
            f"{self.study.workload.prompts}: {len(had)} prompts{kind}{turns} are too few: no prompt is sent twice, and "
            f"{', '.join(needs)}{self._spread() if bucket else ''}; add prompts, or lower measurement.min_requests, "
            "measurement.rounds or workload.concurrency"
            + (", or choose other workload.input_lengths" if bucket else "")
        )

    def _spread(self) -> str:
        counts = ", ".join(f"{len(had)} of {bucket}" for bucket, had in self.had.items())
        outside = len(self.lengths) - sum(map(len, self.had.values()))
        span = f" (of {min(self.lengths)} to {max(self.lengths)} tokens)" if self.lengths else ""
        return f"; the source{span} has {counts}, {outside} outside"


def in_bucket(prompt: Prompt, bucket: str) -> bool:
    """``512-1023`` holds both ends; the empty bucket holds all."""
    if not bucket:
        return True
    low, high = map(int, bucket.split("-"))
    return prompt.input_tokens is not None and low <= prompt.input_tokens <= high


def _requests(prompts: Sequence[Prompt]) -> int:
    return sum(prompt.requests for prompt in prompts)
