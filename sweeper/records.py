"""What flows between the rooms: plain frozen data, written as JSON and read back without loss.

Units: seconds, tokens, output tokens per second over all concurrent requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pydantic import TypeAdapter

from sweeper.speculation import SpeculationConfig


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


@dataclass(frozen=True)
class Quantiles:
    """Distribution of a time over the requests of a load point, in seconds."""

    mean: float
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True)
class RequestRecord:
    """One request as the client saw it; times in seconds since the load point's first request was sent.

    ``verify_rounds``, ``accepted_drafts`` and ``histogram`` are None where the server does not speculate.
    """

    prompt: str
    concurrency: int
    sent_s: float
    first_token_s: float | None
    done_s: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    finish_reason: str
    verify_rounds: int | None = None
    accepted_drafts: int | None = None
    histogram: tuple[int, ...] | None = None
    error: str | None = None

    @property
    def e2e_s(self) -> float:
        return self.done_s - self.sent_s


@dataclass(frozen=True)
class LoadPoint:
    """One config at one load. ``histogram`` and ``accept_length`` are over all requests of the point.

    ``output_tok_s`` counts the tokens that arrived while all ``concurrency`` requests were in flight (ramp
    and drain excluded); ``plain_tok_s`` is Σtokens over the whole wall time. ``step_time_s`` is
    Σ(e2e - TTFT)/ΣV, per token for the baseline. ``sources`` names the server's counters that the accept length and
    the histogram come from.
    """

    concurrency: int
    requests: int
    failed: int
    output_tok_s: Interval
    plain_tok_s: float
    window_s: float
    accept_length: Interval
    histogram: tuple[int, ...]
    step_time_s: float
    ttft_s: Quantiles
    tpot_s: Quantiles
    e2e_s: Quantiles
    sources: Mapping[str, str] = field(default_factory=dict)


class TrialState(str, Enum):
    COMPLETE = "COMPLETE"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"


class FailureClass(str, Enum):
    """Why a trial failed; see ``sweeper.server.failures`` for what each one means."""

    INVALID_CONFIG = "INVALID_CONFIG"
    TREE_TOO_LARGE = "TREE_TOO_LARGE"
    DRAFT_MISSING = "DRAFT_MISSING"
    DRAFT_INCOMPATIBLE = "DRAFT_INCOMPATIBLE"
    CONTEXT_LENGTH = "CONTEXT_LENGTH"
    VOCAB_MISMATCH = "VOCAB_MISMATCH"
    UNSUPPORTED = "UNSUPPORTED"
    OOM_STATIC = "OOM_STATIC"
    OOM_RUNTIME = "OOM_RUNTIME"
    GRAPH_CAPTURE = "GRAPH_CAPTURE"
    PORT = "PORT"
    ARGS = "ARGS"
    WARMUP = "WARMUP"
    CRASH = "CRASH"
    HANG = "HANG"
    LOST = "LOST"
    MEASUREMENT = "MEASUREMENT"


class Blame(str, Enum):
    """Which configs a failure speaks of."""

    NOBODY = "NOBODY"
    CONFIG = "CONFIG"
    TREES = "TREES"
    DRAFT = "DRAFT"
    ALGORITHM = "ALGORITHM"


@dataclass(frozen=True)
class Failure:
    """A classified failure: what happened, in words, and the last lines of the server's log.

    ``blames`` says which other configs would fail in the same way: TREES all with topk > 1, DRAFT all with
    this draft under this algorithm, ALGORITHM all with this algorithm.
    """

    kind: FailureClass
    message: str
    log_tail: tuple[str, ...] = ()
    blames: Blame = Blame.CONFIG


@dataclass(frozen=True)
class Attempt:
    """A launch that failed and was tried again with a change, within the same trial."""

    failure: Failure
    change: str


@dataclass(frozen=True)
class Pin:
    """A flag that both arms of a study get explicitly, and the reason."""

    flag: str
    value: bool | int | float | str | list[int | float | str]
    why: str


@dataclass(frozen=True)
class Divergence:
    """The first token at which an output leaves the baseline's.

    ``gap`` is the log-probability distance of the server's two best tokens there, in nats; None where it is
    unknown: too many divergences to ask for, or another path when asked again.
    """

    prompt: str
    position: int
    gap: float | None


@dataclass(frozen=True)
class OutputComparison:
    """Temperature-0 outputs of a trial against the baseline's, token id by token id.

    A divergence whose ``gap`` is at most ``near_tie`` nats is one that rounding can cause, and harmless.
    """

    compared: int
    identical: int
    divergences: tuple[Divergence, ...] = ()
    near_tie: float = 0.0

    @property
    def equal(self) -> bool:
        """Whether every output equals the baseline's up to known near ties."""
        return all(d.gap is not None and d.gap <= self.near_tie for d in self.divergences)

    @property
    def different(self) -> int:
        """Outputs that left the baseline's where the server was sure: no rounding explains them."""
        return sum(d.gap is not None and d.gap > self.near_tie for d in self.divergences)


@dataclass(frozen=True)
class Hardware:
    """What one server runs on; baselines and trials compare only within one ``key``."""

    device: str
    count: int
    memory_gib: float = 0.0
    driver: str = ""
    host: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        return f"{self.count}x {self.device}"


@dataclass(frozen=True)
class TrialRecord:
    """Everything that is known of one trial's server.

    ``pins`` are the flags both arms share and why, ``unpinned`` what could not be made equal before the launch, and
    ``engine`` what the running server said of itself (backends, memory share, batch limit, ...).
    """

    requested: SpeculationConfig
    effective: SpeculationConfig
    state: TrialState
    load_points: tuple[LoadPoint, ...] = ()
    failure: Failure | None = None
    attempts: tuple[Attempt, ...] = ()
    overrides: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    comparison: OutputComparison | None = None
    command: tuple[str, ...] = ()
    pins: tuple[Pin, ...] = ()
    unpinned: tuple[str, ...] = ()
    engine: Mapping[str, Any] = field(default_factory=dict)
    server_version: str = ""
    hardware: Hardware | None = None
    started_at: str = ""
    start_s: float = 0.0
    measure_s: float = 0.0

    def at(self, concurrency: int) -> LoadPoint | None:
        """The load point at a concurrency, if it was measured."""
        return next((p for p in self.load_points if p.concurrency == concurrency), None)


@dataclass(frozen=True)
class TrialResult:
    """A trial's record with its raw data: what an actor sends back to the driver.

    ``leak`` says what the server left behind when it ended; its actor then takes no further trial.
    """

    record: TrialRecord
    requests: tuple[RequestRecord, ...] = ()
    outputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    log: str = ""
    leak: str | None = None


@dataclass(frozen=True)
class Baseline:
    """The no-speculation arm on one kind of hardware, as cached on disk.

    ``settings`` is what the key was made from, in readable form; ``outputs`` holds the token ids by prompt.
    """

    key: str
    settings: Mapping[str, Any]
    record: TrialRecord
    requests: tuple[RequestRecord, ...]
    outputs: Mapping[str, tuple[int, ...]]
    measured_at: str


trial_record_json: TypeAdapter[TrialRecord] = TypeAdapter(TrialRecord)
baseline_json: TypeAdapter[Baseline] = TypeAdapter(Baseline)
