"""What flows between the rooms: plain frozen data, written as JSON and read back without loss.

Units: seconds, tokens, output tokens per second over all concurrent requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from pydantic import TypeAdapter

from sweeper.speculation import SpeculationConfig


@dataclass(frozen=True, order=True)
class Load:
    """What a server is measured under.

    Closed loop: ``concurrency`` requests in flight at any time. Open loop (``concurrency`` 0): ``rate`` requests per
    second, at Poisson times. ``bucket`` names the input lengths in tokens (``512-1023``), empty for all prompts.
    ``warm``: after other traffic, for algorithms that learn from it.
    """

    concurrency: int = 0
    rate: float = 0.0
    bucket: str = ""
    warm: bool = False

    def __str__(self) -> str:
        """``c=4``, ``2.5/s``, ``c=4 in=512-1023``, ``c=4 warm``: its name in tables, files and the storage."""
        name = f"c={self.concurrency}" if self.concurrency else f"{self.rate!r}/s"
        return name + (f" in={self.bucket}" if self.bucket else "") + (" warm" if self.warm else "")

    @classmethod
    def parse(cls, name: str) -> Load:
        """The load of a name that ``str`` gave."""
        first, *rest = name.split()
        warm = "warm" in rest
        bucket = next((word[3:] for word in rest if word.startswith("in=")), "")
        if first.startswith("c="):
            return cls(int(first[2:]), bucket=bucket, warm=warm)
        return cls(rate=float(first.removesuffix("/s")), bucket=bucket, warm=warm)

    @property
    def open_loop(self) -> bool:
        return not self.concurrency

    @property
    def cold(self) -> Load:
        """The same load without other traffic before it: what the baseline is measured at."""
        return replace(self, warm=False)

    def in_words(self) -> str:
        """``concurrency 4, 512-1023 input tokens``"""
        name = f"concurrency {self.concurrency}" if self.concurrency else f"{self.rate:g} requests per second"
        name += f", {self.bucket} input tokens" if self.bucket else ""
        return f"{name}, after other traffic" if self.warm else name


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

    ``load`` is the load's name. ``arrival_s`` [chunks] and ``arrival_tokens`` [chunks] tell when how many tokens came.
    ``verify_rounds`` (V), ``accepted_drafts`` (D) and ``histogram`` are None where the server does not speculate.
    ``lap`` counts the visits to the load before this one; each has a clock of its own.
    """

    prompt: str
    load: str
    sent_s: float
    first_token_s: float | None
    done_s: float
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    finish_reason: str
    arrival_s: tuple[float, ...] = ()
    arrival_tokens: tuple[int, ...] = ()
    verify_rounds: int | None = None
    accepted_drafts: int | None = None
    histogram: tuple[int, ...] | None = None
    error: str | None = None
    lap: int = 0

    @property
    def e2e_s(self) -> float:
        return self.done_s - self.sent_s


def by_load(loads: Iterable[Load], requests: Sequence[RequestRecord]) -> dict[Load, list[RequestRecord]]:
    """The requests of each load."""
    return {load: [r for r in requests if r.load == str(load)] for load in loads}


@dataclass(frozen=True)
class Repeatability:
    """How much the same measurement on the same server differs from one visit to the next, beyond its own interval.

    (standard error of the log of a rate, or of a latency where the loop is open; its degrees of freedom).
    """

    closed: tuple[float, float] = (0.0, 1.0)
    open: tuple[float, float] = (0.0, 1.0)

    def at(self, load: Load) -> tuple[float, float]:
        return self.open if load.open_loop else self.closed


UNKNOWN_REPEATABILITY = Repeatability()


class EndedBy(str, Enum):
    """Why a load was measured for as long as it was."""

    PRECISION = "PRECISION"
    REQUESTS = "REQUESTS"
    SECONDS = "SECONDS"


@dataclass(frozen=True)
class Warmup:
    """What was sent before a load was measured; ``steady`` is false where its time ran out first."""

    seconds: float
    requests: int
    steady: bool


@dataclass(frozen=True)
class LoadPoint:
    """One config at one load. ``histogram`` and ``accept_length`` are over all requests of the point.

    ``output_tok_s`` counts the tokens that arrived while all ``concurrency`` requests were in flight (ramp
    and drain excluded); ``plain_tok_s`` is Σtokens over the whole wall time. ``step_time_s`` is
    Σ(e2e - TTFT)/ΣV, per token for the baseline. ``drift`` is the speed of the window's second half over that of
    the first; ``unstable`` says that it is beyond tolerance. ``cached_share`` is the share of prompt
    tokens that came from the prefix cache. ``sources`` names the server's counters that the accept length and the
    histogram come from; ``notes`` says what else a reader must know.
    """

    load: Load
    requests: int
    output_tok_s: Interval
    plain_tok_s: float
    window_s: float
    accept_length: Interval
    histogram: tuple[int, ...]
    step_time_s: float
    ttft_s: Quantiles
    tpot_s: Quantiles
    e2e_s: Quantiles
    ended_by: EndedBy
    drift: Interval
    unstable: bool
    warmup: Warmup | None = None
    cached_share: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class TrialState(str, Enum):
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
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
    GPU_LOST = "GPU_LOST"
    OUTPUT = "OUTPUT"
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


class SwapOutcome(str, Enum):
    """What became of a hot swap."""

    MEASURED = "measured"
    """The trial's numbers are those of the running server."""
    PROVEN = "proven"
    """The config was launched as well, and gave the same; the trial's numbers are the launch's."""
    REFUTED = "refuted"
    """It was launched, and gave something else: ``why`` tells what. Its numbers are the launch's."""
    FAILED = "failed"
    """The running server gave no numbers: ``why``. Those of the trial are the launch's."""


@dataclass(frozen=True)
class HotSwap:
    """A draft's weights were loaded into a server that ran a sibling of it, in so many ``seconds``.

    ``launched_with`` names the draft that the server was started with. The accept lengths of both servers, where there
    were two, are over the same prompts.
    """

    launched_with: str
    seconds: float
    outcome: SwapOutcome = SwapOutcome.MEASURED
    swapped_accept_length: float | None = None
    launched_accept_length: float | None = None
    why: str = ""

    @property
    def believed(self) -> bool:
        """Whether more may be expected of swaps than a launch."""
        return self.outcome in (SwapOutcome.MEASURED, SwapOutcome.PROVEN)

    def __str__(self) -> str:
        place = f"the running server of {self.launched_with}"
        if self.outcome is SwapOutcome.MEASURED:
            return f"measured on {place}, its weights loaded in {self.seconds:.0f} s"
        if self.outcome is SwapOutcome.FAILED:
            return f"launched, since it could not be measured on {place}: {self.why}"
        lengths = ""
        if self.swapped_accept_length is not None and self.launched_accept_length is not None:
            lengths = (
                f": accept length {self.launched_accept_length:.3f}, and {self.swapped_accept_length:.3f} with its "
                f"weights loaded into {place}"
            )
        return f"launched, to compare{lengths}" + (f"; refuted: {self.why}" if self.why else "")


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
    def unexplained(self) -> int:
        """Outputs that left the baseline's where the server's certainty is not known."""
        return sum(d.gap is None for d in self.divergences)

    @property
    def equal(self) -> bool | None:
        """Whether every output equals the baseline's up to known near ties; None where there were none to compare."""
        if not self.compared:
            return None
        return all(d.gap is not None and d.gap <= self.near_tie for d in self.divergences)

    @property
    def different(self) -> int:
        """Outputs that left the baseline's where the server was sure: no rounding explains them."""
        return sum(d.gap is not None and d.gap > self.near_tie for d in self.divergences)


@dataclass(frozen=True)
class Hardware:
    """What one server runs on; baselines and trials compare only within one ``key``. ``host``: its (first) node."""

    device: str
    count: int
    memory_gib: float = 0.0
    driver: str = ""
    host: str = field(default="", compare=False)
    nodes: int = 1

    @property
    def key(self) -> str:
        return f"{self.count}x {self.device}" + (f" on {self.nodes} nodes" if self.nodes > 1 else "")


@dataclass(frozen=True)
class TrialRecord:
    """Everything that is known of one trial's server.

    ``pins`` are the flags both arms share and why, ``unpinned`` what could not be made equal before the launch, and
    ``engine`` what the running server said of itself (backends, memory share, batch limit, ...). ``workload`` is the
    fingerprint of its prompts; ``pruned`` says why loads were left out; ``simulated`` names what made the server report
    acceptance that it did not have. ``command`` would launch the config, also where a running server was used;
    ``draft_checksum`` is of the weights in such a server.
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
    workload: str = ""
    pruned: str = ""
    simulated: str = ""
    hot_swap: HotSwap | None = None
    draft_checksum: str = ""
    hardware: Hardware | None = None
    started_at: str = ""
    start_s: float = 0.0
    measure_s: float = 0.0

    @property
    def launched(self) -> bool:
        """Whether its numbers are those of a launch, not of a server that ran already."""
        return self.hot_swap is None or self.hot_swap.outcome is not SwapOutcome.MEASURED

    @property
    def loads(self) -> list[Load]:
        """Those that were measured."""
        return [point.load for point in self.load_points]

    def at(self, load: Load) -> LoadPoint | None:
        """The load point at a load, if it was measured."""
        return next((p for p in self.load_points if p.load == load), None)


@dataclass(frozen=True)
class TrialResult:
    """A trial's record with its raw data: what an actor sends back to the driver.

    ``leak`` says what the server left behind when it ended; its actor then takes no further trial. ``server`` names
    the actor; it was ``kept`` running where it waits for another draft's weights.
    """

    record: TrialRecord
    requests: tuple[RequestRecord, ...] = ()
    outputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    log: str = ""
    leak: str | None = None
    server: str = ""
    kept: bool = False


@dataclass(frozen=True)
class Baseline:
    """The no-speculation arm on one kind of hardware, as cached on disk.

    ``settings`` is what the key was made from, in readable form; ``outputs`` holds the token ids by prompt. Its
    requests lie beside it, as a table (``sweeper.runs.request_table``). ``repeatability`` comes from its laps.
    """

    key: str
    settings: Mapping[str, Any]
    record: TrialRecord
    outputs: Mapping[str, tuple[int, ...]]
    measured_at: str
    requests: tuple[RequestRecord, ...] = ()
    repeatability: Repeatability = UNKNOWN_REPEATABILITY

    def requests_at(self, load: Load) -> list[RequestRecord]:
        return [r for r in self.requests if r.load == str(load)]


@dataclass(frozen=True)
class BaselineCheck:
    """The baseline measured once more: ``drift`` is its speed now over the speed then, at the objective loads.

    None where the server failed, which ``failure`` tells. ``comparison`` compares its outputs with its own earlier
    ones: the noise floor of the quality gate.
    """

    when: str
    server: str
    drift: Interval | None
    beyond_tolerance: bool
    failure: str = ""
    comparison: OutputComparison | None = None
    checked_at: str = ""

    def __str__(self) -> str:
        """``-3.1 % [-4.0, -2.2]``, or why it failed."""
        if self.drift is None:
            return self.failure
        value, low, high = (100 * (end - 1) for end in (self.drift.value, self.drift.low, self.drift.high))
        return f"{value:+.1f} % [{low:+.1f}, {high:+.1f}]"


@dataclass(frozen=True)
class ConfirmationRound:
    """The baseline and the finalists measured in turns on one server, one launch each.

    ``speedups`` holds [value, standard error of the log, degrees of freedom] by trial number and load, over the
    baseline of the same round; ``failures`` tells by trial number why one is missing.
    """

    number: int
    server: str
    order: tuple[str, ...]
    baseline: TrialRecord
    trials: Mapping[int, TrialRecord]
    speedups: Mapping[int, Mapping[str, tuple[float, float, float]]]
    failures: Mapping[int, str] = field(default_factory=dict)


trial_record_json: TypeAdapter[TrialRecord] = TypeAdapter(TrialRecord)
baseline_json: TypeAdapter[Baseline] = TypeAdapter(Baseline)
checks_json: TypeAdapter[tuple[BaselineCheck, ...]] = TypeAdapter(tuple[BaselineCheck, ...])
rounds_json: TypeAdapter[tuple[ConfirmationRound, ...]] = TypeAdapter(tuple[ConfirmationRound, ...])
