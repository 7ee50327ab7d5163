"""The rows of a study's report: a trial, a load, the baseline. Plain data; schema in docs/schemas/."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from sweeper.analysis.shortfall import Shortfall
from sweeper.analysis.step_time import StepTimeSplit
from sweeper.breakeven import BreakEven
from sweeper.records import EndedBy, Interval, OutputComparison, Pin
from sweeper.speculation import SpeculationConfig


class Row(BaseModel):
    model_config = ConfigDict(frozen=True)


class LoadRow(Row):
    """One config at one load. Rates in output tokens per second, times in milliseconds."""

    load: str = Field(description="the load's name: c=4 (closed loop), 2.5/s (open loop), c=4 in=512-1023")
    concurrency: int = Field(description="requests in flight; 0: open loop")
    bucket: str = Field("", description="input lengths in tokens; empty: all prompts")
    output_tok_s: Interval
    speedup: Interval = Field(
        description="over the baseline on the same prompts, with its 95 % interval; open loop: of the mean latency"
    )
    confirmed: Interval | None = Field(
        None, description="the speedup measured again, in turns with the baseline; null: no finalist"
    )
    accept_length: Interval
    break_even_accept_length: float = Field(description="accept length above which the config pays here")
    histogram: list[int] = Field([], description="verify rounds by accepted drafts: h[0], h[1], ...")
    marginal_acceptance: list[float] = Field(
        [], description="share of the verify rounds that accept at least i drafts, for i = 1, 2, ..."
    )
    conditional_acceptance: list[float] = Field(
        [], description="acceptance at position i among the rounds that accepted position i-1"
    )
    shortfall: Shortfall | None = Field(
        None, description="what would make the config pay here, in seconds and tokens; null: it does"
    )
    split: StepTimeSplit | None = Field(
        None, description="where the seconds of a verify round go; null: too few configs to tell"
    )
    step_time_ms: float
    ttft_p50_ms: float
    tpot_p50_ms: float
    e2e_p90_ms: float
    requests: int
    ended_by: EndedBy = Field(description="why no more requests were sent")
    drift: Interval | None = Field(
        None, description="speed of the second half of the measurement over that of the first"
    )
    unstable: bool = Field(description="the server became faster or slower while it was measured")
    notes: list[str] = []

    @property
    def margin(self) -> float:
        """By how much the accept length exceeds the one at which the config pays, as a share of it."""
        return self.accept_length.value / self.break_even_accept_length - 1

    @property
    def best_known(self) -> Interval:
        """The confirmed speedup, or else the one of the search."""
        return self.confirmed or self.speedup

    @property
    def standing(self) -> tuple[bool, float]:
        """What the fastest is found by: no number of the search beats a confirmed one."""
        return self.confirmed is not None, self.best_known.value


class TrialRow(Row):
    """One trial. ``objective`` is the geometric mean of its speedups at the objective loads, during the search."""

    number: int
    state: str = Field(description="COMPLETE, PRUNED, FAILED, INTERRUPTED, RUNNING or WAITING")
    config: SpeculationConfig = Field(description="the effective config")
    requested: SpeculationConfig | None = Field(None, description="what was asked for, where it differs")
    overrides: list[str] = []
    warnings: list[str] = []
    objective: Interval | None = None
    confirmed: Interval | None = Field(
        None, description="the objective measured again, in turns with the baseline, before the verdict"
    )
    confirmation_failure: str | None = None
    loads: list[LoadRow] = []
    break_even: dict[str, BreakEven] = Field(
        {}, description="break-even concurrency by input-length bucket ('' where there are none)"
    )
    outputs_equal: bool | None = Field(
        None, description="temperature-0 outputs equal the baseline's up to near ties; null: not compared"
    )
    comparison: OutputComparison | None = None
    lossy: list[str] = Field(
        [], description="why the config may change the target's output; such a config cannot win"
    )
    pruned: str | None = Field(None, description="why its remaining loads were not measured")
    failure_class: str | None = None
    failure: str | None = None
    next_step: str | None = Field(None, description="what a person can do about the failure")
    attempts: list[str] = Field(
        [], description="launches or hot swaps of this trial that failed before, and what was changed"
    )
    hot_swap: str | None = Field(
        None,
        description="how it was measured on a running server, or what came of trying to; null: it was launched",
    )
    log_tail: list[str] = []
    pins: list[Pin] = Field([], description="flags set explicitly, and why")
    unequal: list[str] = Field([], description="what the server ran with otherwise than the baseline's")
    command: list[str] = Field([], description="what the server was started with")
    server: str = Field("", description="the actor that ran it")
    log: str = Field("", description="its server's log, relative to the run directory")
    started_at: str | None = Field(None, description="when its launch began (UTC)")
    start_s: float | None = Field(
        None, description="seconds until the server was healthy, or had its weights"
    )
    measure_s: float | None = Field(None, description="seconds of warming up and measuring")

    def at(self, load: str) -> LoadRow | None:
        return next((row for row in self.loads if row.load == load), None)

    @property
    def best_known(self) -> Interval | None:
        """The confirmed objective, or else the one of the search."""
        return self.confirmed or self.objective

    @property
    def standing(self) -> tuple[bool, float]:
        """As of a load; a trial that measured nothing comes last."""
        return self.confirmed is not None, self.best_known.value if self.best_known else 0.0


class BaselineRow(Row):
    """The server without speculation at one load."""

    load: str
    concurrency: int
    output_tok_s: Interval
    step_time_ms: float
    ttft_p50_ms: float
    requests: int
    ended_by: EndedBy
    unstable: bool
    notes: list[str] = []


class CheckRow(Row):
    """The baseline measured once more: its speed over that of the study's baseline."""

    when: str
    server: str
    drift: Interval | None
    beyond_tolerance: bool
    failure: str = ""


class LoadChoice(Row):
    """What to deploy for one load alone."""

    load: str
    trial: int | None = Field(description="number of the best trial; null: no speculation")
    config: str
    speedup: Interval | None = None
    confirmed: bool = False


class SingleChoice(Row):
    """The one config, or none, whose largest regret over all loads is smallest."""

    trial: int | None
    config: str
    regrets: dict[str, float] = Field(
        description="by load: the share of the best config's speed there that is given up"
    )


class CostRow(Row):
    """A cost of the step-time model, in milliseconds per verify round."""

    term: str = Field(description="round, step, token (to verify) or branch (of a draft step)")
    ms: float
    interval_ms: Interval | None = Field(None, description="null: too few configs to know")


class StepTimeRow(Row):
    """Step time as a linear model of the config's shape, for one algorithm at one load."""

    load: str
    algorithm: str
    costs: list[CostRow]
    separable: bool = Field(description="whether drafting can be told from verifying")
    scatter: float | None = Field(description="relative scatter of the measurements about the model")
    measurements: int


class SpanRow(Row):
    """One launch: when, where and for how long."""

    kind: str = Field(description="baseline, trial or confirmation")
    label: str
    trial: int | None
    server: str
    started_at: str
    start_s: float
    measure_s: float
    state: str
