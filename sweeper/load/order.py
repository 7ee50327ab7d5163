"""What one load is to be (``Order``), how far it got (``Progress``), and what came of it (``LoadRun``)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sweeper.records import EndedBy, Load, RequestRecord
from sweeper.workload.conversation import Prompt

CHECK_EVERY_S = 0.25
CHECK_SHARE = 0.02
"""Most of the time that ``Order.enough`` may take: no token's time can be noted meanwhile."""

Enough = Callable[[Sequence[RequestRecord], float], bool]
"""Whether the finished requests, at a time in seconds since the start, tell the rate well enough."""


def never(requests: Sequence[RequestRecord], now_s: float) -> bool:
    return False


@dataclass(frozen=True)
class Order:
    """One load. ``prompts`` are sent in their order until one of three things happens:

    | ended by  | when                                                        |
    |-----------|-------------------------------------------------------------|
    | PRECISION | ``least`` requests are finished, and ``enough`` says so     |
    | SECONDS   | ``least`` requests are sent, and ``max_seconds`` are over   |
    | REQUESTS  | all prompts and their follow-ups are sent                   |

    What is in flight then is finished. ``rate`` is told the output tok/s of the finished requests. ``max_new_tokens``
    stands in for the workload's own, in a warm-up for example.
    """

    prompts: Sequence[Prompt]
    load: Load
    least: int = 0
    max_seconds: float = math.inf
    enough: Enough = never
    rate: Callable[[float], None] = lambda tokens_per_second: None
    max_new_tokens: int | None = None


@dataclass(frozen=True)
class LoadRun:
    """Raw outcome of one load. ``requests`` stand in the order they were sent; times are in seconds since its start.

    ``outputs`` [output tokens] has no entry for requests that failed or whose server dropped ids (up to 0.5.9).
    ``ended_by`` is REQUESTS where the load broke off: after a failed request, a stall, or on ``stop``.
    """

    load: Load
    requests: tuple[RequestRecord, ...]
    outputs: Mapping[str, tuple[int, ...]]
    sources: Mapping[str, str]
    ended_by: EndedBy
    stalled_s: float | None = None
    """Seconds without a single token from any request, after which the load was given up; None: it went on."""
    cpu_s: float = 0.0
    """CPU seconds that this process used meanwhile; near the wall time, the client itself is the bottleneck."""
    late_s: float = 0.0
    """Open loop: by how many seconds a request was sent after its scheduled time, at most."""


@dataclass
class Progress:
    """One load under way: what was sent and finished, and whether it goes on.

    ``started`` is the performance counter's reading at time 0.
    """

    order: Order
    started: float = field(default_factory=time.perf_counter)
    requests: list[RequestRecord] = field(default_factory=list)
    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    ended_by: EndedBy | None = None
    broken: bool = False
    sent: int = 0
    in_flight: int = 0
    last_sign_of_life: float = 0.0
    late_s: float = 0.0
    _dealt: int = 0
    _turns_left: int = 0
    _next_check: float = 0.0
    _tokens: int = 0

    def now(self) -> float:
        return time.perf_counter() - self.started

    def goes_on(self) -> bool:
        """Whether a further request may be sent."""
        if self.ended_by is None and not self.broken:
            if self._dealt == len(self.order.prompts) and not self._turns_left:
                self.ended_by = EndedBy.REQUESTS
            elif self.sent >= self.order.least and self.now() > self.order.max_seconds:
                self.ended_by = EndedBy.SECONDS
        return self.ended_by is None and not self.broken

    def next_prompt(self) -> Prompt | None:
        """None where no further conversation is to begin."""
        if not self.goes_on() or self._dealt == len(self.order.prompts):
            return None
        prompt = self.order.prompts[self._dealt]
        self._dealt += 1
        self._turns_left += prompt.requests - 1
        return prompt

    def next_turn(self) -> bool:
        """Whether a conversation may go on."""
        if not self.goes_on():
            return False
        self._turns_left -= 1
        return True

    def begin(self) -> None:
        """Another request is under way. An idle server owes nobody a token, so silence counts from here."""
        if not self.in_flight:
            self.last_sign_of_life = self.now()
        self.sent += 1
        self.in_flight += 1

    def finish(self, record: RequestRecord) -> None:
        self.requests.append(record)
        self.broken = self.broken or record.error is not None
        now = self.now()
        self._tokens += record.completion_tokens
        self.order.rate(self._tokens / max(now, 1e-9))
        if len(self.requests) < self.order.least or now < self._next_check or not self.goes_on():
            return
        if self.order.enough(self.requests, now):
            self.ended_by = EndedBy.PRECISION
        self._next_check = self.now() + max(CHECK_EVERY_S, (self.now() - now) / CHECK_SHARE)

    def silence_s(self) -> float:
        """Seconds since the last token from anybody, while somebody waits for one."""
        return self.now() - self.last_sign_of_life if self.in_flight else 0.0

    def outcome(self, stalled_s: float | None) -> LoadRun:
        return LoadRun(
            load=self.order.load,
            requests=tuple(sorted(self.requests, key=lambda request: request.sent_s)),
            outputs=self.outputs,
            sources=self.sources,
            ended_by=self.ended_by or EndedBy.REQUESTS,
            stalled_s=stalled_s,
            late_s=self.late_s,
        )
