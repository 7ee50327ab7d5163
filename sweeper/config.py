"""The study file as data: what a person writes in ``search_spaces/*.yaml``.

Every field has a default or is required; unknown keys are errors. ``sweeper.study_file.reading`` reads the YAML,
expands ``${ENV}`` and turns what pydantic finds into errors with a file, a line and a YAML path.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from difflib import get_close_matches
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from sweeper.records import Load
from sweeper.rules.algorithms import ALGORITHMS
from sweeper.rules.rule import Algorithm, Parameter
from sweeper.speculation import NO_DRAFT
from sweeper.study_file.extra_args import unusable_flag

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

MAX_RANGE = 1000

MAX_COMBINATIONS = 20_000
"""Of all grids together; going through as many takes seconds."""

MAX_LOADS = 1000

MAX_SEED = 2**32 - 1
"""What NumPy takes."""


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise ValueError(
            "a name has 1 to 64 letters, digits, '.', '_' or '-' and starts with a letter or digit"
        )
    return value


Name = Annotated[str, AfterValidator(_name)]


def _off_or_word(value: object) -> object:
    """YAML reads a bare ``off`` as false."""
    return "off" if value is False else value


def _as_list(value: Any) -> Any:
    """Accept ``3``, ``[1, 3, 5]`` or ``{min: 1, max: 9, step: 2}`` (max included)."""
    if isinstance(value, dict):
        unknown = set(value) - {"min", "max", "step"}
        if unknown or not {"min", "max"} <= set(value) or not all(type(v) is int for v in value.values()):
            raise ValueError("a range is {min: INT, max: INT, step: INT}; step may be left out")
        low, high, step = value["min"], value["max"], value.get("step", 1)
        if step < 1 or high < low:
            raise ValueError(f"empty range: min {low}, max {high}, step {step}")
        if high - low >= MAX_RANGE:
            raise ValueError(f"a range spans at most {MAX_RANGE} values, not {high - low + 1}")
        return list(range(low, high + 1, step))
    return value if isinstance(value, list) else [value]


Integers = Annotated[list[Annotated[int, Field(strict=True)]], BeforeValidator(_as_list), Field(min_length=1)]
PositiveIntegers = Annotated[
    list[Annotated[int, Field(strict=True, ge=1)]], BeforeValidator(_as_list), Field(min_length=1)
]
Values = Annotated[
    list[Annotated[int, Field(strict=True)] | Annotated[str, Field(strict=True)]],
    BeforeValidator(_as_list),
    Field(min_length=1),
]
Strings = Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1)]


Bucket = Annotated[list[Annotated[int, Field(strict=True, ge=1)]], Field(min_length=2, max_length=2)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Engine(Section):
    """The SGLang server under test: the same for every trial and for the baseline."""

    model: str = Field(description="target checkpoint: a directory or a hub id")
    device: Literal["cuda", "cpu"] = "cuda"
    tensor_parallel: int = Field(1, ge=1)
    python: str | None = Field(
        None, description="interpreter that has SGLang; default: the one running the sweep"
    )
    extra_args: dict[str, bool | int | float | str | list[int | float | str]] = Field(
        default_factory=dict,
        description="server flags by name, e.g. mem-fraction-static: 0.85; those named speculative-* go to "
        "speculating servers only",
    )
    env: dict[str, str] = Field(
        default_factory=dict,
        description="environment of the server; ${VAR} is expanded at launch, never stored",
    )
    start_timeout_s: float = Field(1800, gt=0, description="seconds a launch may take until it serves")

    def _flag(self, *names: str) -> Any:
        """A flag of ``extra_args`` by any of its names; None where it is not given."""
        given = {name.lstrip("-").replace("_", "-"): value for name, value in self.extra_args.items()}
        return next((given[name] for name in names if name in given), None)

    def _size(self, *names: str) -> int:
        value = self._flag(*names)
        return value if type(value) is int and value > 0 else 1  # SGLang itself refuses what is none

    @property
    def ranks(self) -> int:
        """Processes of one replica, each with a GPU of its own: tensor x pipeline parallel."""
        return self.tensor_parallel * self._size("pp-size", "pipeline-parallel-size")

    @property
    def replicas(self) -> int:
        """Whole copies of the model. Under DP attention, data parallelism shares the GPUs of tensor parallelism."""
        if self._flag("enable-dp-attention"):
            return 1
        return self._size("dp-size", "data-parallel-size")

    @property
    def dp_attention(self) -> bool:
        """Whether attention runs data-parallel, which makes SGLang's processes meet over TCP."""
        return bool(self._flag("enable-dp-attention")) or self._size("attn-dp-size") > 1

    @model_validator(mode="after")
    def _only_free_flags(self) -> Engine:
        unusable = unusable_flag(self.extra_args)
        if unusable:
            raise _wrong(unusable[1], "extra_args", unusable[0])
        for name in self.env:
            if not VARIABLE_NAME.fullmatch(name):
                raise _wrong(f"{name!r} is no name of an environment variable", "env", name)
        return self


Accuracies = Annotated[list[Annotated[float, Field(ge=0, le=1)]], Field(min_length=1)]


class Training(Section):
    """What a draft's training reported, by draft position from the first on. One of the two lists."""

    conditional_accuracy: Accuracies | None = Field(
        None, description="agreement at each position, given the right tokens before it: what trainings log"
    )
    marginal_accuracy: Accuracies | None = Field(
        None, description="share of chains that are right up to each position; never rises"
    )
    step: int | None = Field(None, ge=0, description="training step of the checkpoint")

    @model_validator(mode="after")
    def _one_list(self) -> Training:
        if self.conditional_accuracy is not None and self.marginal_accuracy is not None:
            raise ValueError("give conditional_accuracy or marginal_accuracy, not both")
        marginal = self.marginal_accuracy or []
        if any(after > before for before, after in pairwise(marginal)):
            raise _wrong(
                "marginal accuracies never rise: these are conditional ones, give them as conditional_accuracy",
                "marginal_accuracy",
            )
        return self


class Draft(Section):
    """A draft checkpoint."""

    path: str = Field(description="a directory or a hub id")
    training: Training | None = Field(None, description="what its training promised, for sweeper diagnose")


class Grid(Section):
    """A block of the space: the product of its lists. Several grids add up.

    Besides ``algorithm`` and ``drafts`` it holds the algorithm's own parameters, each a value, a list or a range:
    ``num_steps``, ``topk`` and ``num_draft_tokens`` for the EAGLE family, ``breadth`` and more for NGRAM,
    ``block_size`` for DFLASH, ``gamma`` for DSPARK (``sweeper/rules/algorithms.py`` lists them all).
    """

    model_config = ConfigDict(extra="allow", frozen=True)
    __pydantic_extra__: dict[str, Values] = Field(init=False)

    algorithm: Strings
    drafts: Annotated[list[str], BeforeValidator(_as_list)] | None = Field(
        None, description="names from space.drafts; default: all of them, for algorithms that take a draft"
    )

    @property
    def values(self) -> dict[str, list[int | str]]:
        """The parameters that this grid gives, by name."""
        return self.__pydantic_extra__

    @model_validator(mode="after")
    def _known(self) -> Grid:
        for name in self.algorithm:
            if name not in ALGORITHMS:
                raise ValueError(f"unknown algorithm {name!r}; known: {', '.join(ALGORITHMS)}")
            _check_parameters(ALGORITHMS[name], self.values)
        return self


def _check_parameters(algorithm: Algorithm, values: dict[str, list[int | str]]) -> None:
    """Raises ValidationError, at the key's place, where a key or a value is none of the algorithm's parameters."""
    names = [parameter.name for parameter in algorithm.parameters]
    for key, given in values.items():
        parameter = algorithm.parameter(key)
        if parameter is None:
            near = get_close_matches(key, names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise _wrong(f"{algorithm.name} has no such key, it takes {', '.join(names)}{hint}", key)
        for index, value in enumerate(given):
            if parameter.reads:
                _check_text(parameter.reads, value, key, index)
            elif not _fits(parameter, value):
                wanted = " or ".join(parameter.choices) or f"integers from {parameter.least} on"
                raise _wrong(f"{algorithm.name} takes {wanted} here, not {value!r}", key, index)
    missing = [p.name for p in algorithm.parameters if p.required and p.name not in values]
    if missing:
        raise ValueError(f"{algorithm.name} needs {' and '.join(missing)}")
    if "topk" in names and "num_draft_tokens" not in values and any(k != 1 for k in values.get("topk", ())):
        raise ValueError("num_draft_tokens must be given where topk is not 1: SGLang needs all three numbers")


def _wrong(message: str, *place: str | int) -> ValidationError:
    """An error at a place inside the section that is being validated."""
    kind = PydanticCustomError("study_file", "{message}", {"message": message})
    return ValidationError.from_exception_data("Grid", [InitErrorDetails(type=kind, loc=place, input=None)])


def _check_text(reads: Callable[[str], object], value: int | str, *place: str | int) -> None:
    try:
        reads(str(value))
    except ValueError as error:
        raise _wrong(str(error), *place) from None


def _fits(parameter: Parameter, value: int | str) -> bool:
    if parameter.choices:
        return value in parameter.choices
    return isinstance(value, int) and (parameter.sets is not None or value >= parameter.least)


class Space(Section):
    """Which speculation configs to try."""

    drafts: dict[Name, Draft] = Field(default_factory=dict)
    grids: list[Grid] = Field(min_length=1)

    @model_validator(mode="after")
    def _drafts_exist(self) -> Space:
        for i, grid in enumerate(self.grids):
            for name in grid.drafts or ():
                if name not in self.drafts:
                    known = ", ".join(self.drafts) or "none"
                    raise ValueError(f"grids[{i}].drafts: no draft {name!r} in space.drafts (there: {known})")
            for algorithm in grid.algorithm:
                rules = ALGORITHMS[algorithm]
                if rules.needs_draft and not rules.draft_optional and not (grid.drafts or self.drafts):
                    raise ValueError(f"grids[{i}]: {algorithm} needs a draft; list one in space.drafts")
        if NO_DRAFT in self.drafts:
            raise ValueError(f"a draft cannot be called {NO_DRAFT!r}: that stands for configs without one")
        asked = sum(self._combinations(grid) for grid in self.grids)
        if asked > MAX_COMBINATIONS:
            raise ValueError(f"the grids ask for {asked:,} combinations, more than {MAX_COMBINATIONS:,}")
        return self

    def _combinations(self, grid: Grid) -> int:
        """At most as many configs as a grid asks for."""
        drafts = len(self.drafts if grid.drafts is None else grid.drafts) or 1
        return len(grid.algorithm) * drafts * math.prod(len(values) for values in grid.values.values())


class Workload(Section):
    """The traffic: prompts, what is generated from them, and the loads they are sent at."""

    prompts: str = Field(
        description="file with the prompts (JSONL in one of several shapes, CSV or text), or a preset's name"
    )
    format: Literal["auto", "prompt", "messages", "sharegpt", "turns", "text", "csv"] = Field(
        "auto", description="shape of the file; auto: by its name and its keys"
    )
    prompt_column: str = Field("prompt", description="the column of a CSV file that holds the prompts")
    chat_template: bool | None = Field(
        None,
        description="render prompts through the target's chat template; default: conversations yes, plain prompts no",
    )
    chat_template_kwargs: dict[str, bool | int | float | str] = Field(
        default_factory=dict, description="passed to the template, e.g. enable_thinking: false"
    )
    concurrency: PositiveIntegers = [1, 4, 16]
    request_rates: list[Annotated[float, Field(gt=0)]] = Field(
        default_factory=list,
        description="further loads, open loop: requests per second (Poisson), compared by mean latency",
    )
    input_lengths: list[Bucket] = Field(
        default_factory=list,
        description="buckets [least, most] of input tokens; each is measured at every load on its own",
    )
    prefix_cache: bool = Field(
        False, description="leave the prefix cache on, on both arms, and report what it served"
    )
    max_new_tokens: int = Field(256, ge=2)
    temperature: float = Field(0.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(-1, ge=-1)
    ignore_eos: bool = Field(
        False, description="go on after the end of sequence: text after it is easy to draft"
    )

    @model_validator(mode="after")
    def _ascending(self) -> Workload:
        if sorted(set(self.concurrency)) != self.concurrency:
            raise ValueError("concurrency levels must ascend without repeats")
        if sorted(set(self.request_rates)) != self.request_rates:
            raise ValueError("request_rates must ascend without repeats")
        ends = [end for bucket in self.input_lengths for end in bucket]
        if sorted(set(ends)) != ends:
            raise ValueError("input_lengths must be ascending [least, most] pairs that do not overlap")
        levels, buckets = len(self.concurrency) + len(self.request_rates), len(self.input_lengths) or 1
        if levels * buckets > MAX_LOADS:
            raise ValueError(f"{levels * buckets:,} loads are more than {MAX_LOADS:,}")
        return self

    @property
    def loads(self) -> tuple[Load, ...]:
        """Every load that a config is measured at."""
        buckets = [f"{low}-{high}" for low, high in self.input_lengths] or [""]
        closed = [Load(c, bucket=b) for c in self.concurrency for b in buckets]
        return (*closed, *(Load(rate=r, bucket=b) for r in self.request_rates for b in buckets))


class Measurement(Section):
    """How long each load is measured: until the rate is known well enough, or its budget is used up.

    A load sends at least max(min_requests, rounds x concurrency) requests. It ends once the 95 % interval of its
    rate is within target_relative_error, at the latest after max_requests requests (or that minimum, if it is more) or
    max_seconds.
    """

    target_relative_error: float = Field(
        0.03, gt=0, lt=1, description="half-width of the rate's 95 % interval, relative to the rate"
    )
    min_requests: int = Field(32, ge=4)
    rounds: int = Field(4, ge=2)
    max_requests: int = Field(128, ge=4)
    max_seconds: float = Field(120, gt=0, description="per load, after its minimum of requests")
    warmup_tolerance: float = Field(
        0.1, gt=0, description="warm-up ends when two rounds in a row differ by no more than this share"
    )
    warmup_seconds: float = Field(
        60, gt=0, description="per load; a server that is not steady by then is measured so"
    )
    drift_tolerance: float = Field(
        0.1,
        gt=0,
        description="a load whose second half is faster or slower than its first by more than this is UNSTABLE",
    )
    quality_requests: int = Field(
        16,
        ge=1,
        description="greedy requests that compare outputs with the baseline's where temperature is not 0",
    )
    request_timeout_s: float = Field(
        600, gt=0, description="a request that takes longer fails its load point"
    )
    stall_timeout_s: float = Field(
        45, gt=0, description="a server that sends no token to any request for this long hangs"
    )
    seed: int = Field(
        1, ge=0, le=MAX_SEED, description="order of the prompts and the server's random seed, on both arms"
    )

    def least_requests(self, load: Load) -> int:
        """Requests that a load sends whatever happens; an open loop counts as concurrency 1."""
        return max(self.min_requests, self.rounds * max(load.concurrency, 1))

    def most_requests(self, load: Load) -> int:
        return max(self.max_requests, self.least_requests(load))


class Search(Section):
    """In which order candidates are tried and when to stop."""

    sampler: Literal["structural", "tpe", "gp", "random", "grid"] = Field(
        "tpe",
        description="structural: a model of accept length and step time, which ends the search by itself; the others "
        "know nothing of speculation; see docs/search.md",
    )
    min_expected_gain: float = Field(
        0.01,
        ge=0,
        lt=1,
        description="structural: stop when one more launch is expected to gain less than this share; 0: go on",
    )
    warm_start: Annotated[list[str], BeforeValidator(_as_list)] = Field(
        default_factory=list,
        description="structural: runs of the same target (names or directories) whose results are prior knowledge",
    )
    acceptance_map: str | None = Field(
        None, description="structural: a file of `sweeper map` for the drafts, as prior knowledge"
    )
    max_trials: int | None = Field(None, ge=1, description="server launches; default: the whole space")
    seed: int = Field(0, ge=0, le=MAX_SEED)
    objective_load: Annotated[list[int], BeforeValidator(_as_list)] | None = Field(
        None, description="concurrency to win at (several: geometric mean of speedups); default: the lowest"
    )
    objective_rate: Annotated[list[float], BeforeValidator(_as_list)] | None = Field(
        None, description="request rates to win at, by latency; alone or together with objective_load"
    )
    hot_swap: Annotated[Literal["auto", "off"], BeforeValidator(_off_or_word)] = Field(
        "auto",
        description="auto: measure several checkpoints of one draft on one launch, by loading their weights into the "
        "running server, where that is known to work and saves launches; see docs/search.md",
    )
    prune: bool = Field(
        True,
        description="measure the objective loads first, and skip the others of a config that is surely slower there "
        "than the best one, or than no speculation",
    )

    @model_validator(mode="after")
    def _has_use_for_prior_knowledge(self) -> Search:
        given = [name for name in ("warm_start", "acceptance_map") if getattr(self, name)]
        if given and self.sampler != "structural":
            raise ValueError(f"{given[0]} needs sampler: structural; {self.sampler} knows nothing of it")
        return self


class Confirmation(Section):
    """The best configs and the baseline are measured again, in turns on the same GPUs, before one is declared."""

    finalists: int = Field(2, ge=1)
    repeats: int = Field(
        2, ge=0, description="launches of each finalist and of the baseline; 0: no confirmation"
    )
    most_repeats: int = Field(
        4,
        ge=0,
        description="as many launches instead, while a finalist looks faster than no speculation and none surely is",
    )
    objective_only: bool = Field(False, description="measure the objective loads only, not all of them")
    tie: float = Field(
        0.01, ge=0, lt=1, description="within this share of the best, the cheapest config wins"
    )


class BaselineSettings(Section):
    """Where the no-speculation arm is kept, and how far it may drift."""

    cache_dir: str = Field(
        "~/.cache/sweeper/baselines", description="where baselines are kept between studies"
    )
    tolerance: float = Field(
        0.05,
        gt=0,
        lt=1,
        description="a cached baseline that is off by more than this share is measured again",
    )
    laps: int = Field(
        3,
        ge=1,
        description="how often its loads are visited, in turns; what these visits differ by beyond their own "
        "intervals goes into every interval of the study. 1: never looked at",
    )


class Resources(Section):
    """What Ray reserves for one server, and on which nodes."""

    gpus_per_server: float | None = Field(
        None,
        ge=0,
        description="all its GPUs, on all its nodes; default: tensor x pipeline x data parallel on cuda, 0 on cpu",
    )
    cpus_per_server: float = Field(1, gt=0, description="on each of its nodes")
    nodes_per_server: int | None = Field(
        None, ge=1, description="default: one node where a server fits on one, else the fewest that hold it"
    )
    accelerator_type: str | None = Field(
        None, min_length=1, description="only GPUs that Ray knows by this name, e.g. H100; see ray status"
    )
    custom: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict, description="the cluster's own resources, on each of a server's nodes"
    )
    max_servers: int | None = Field(None, ge=1, description="servers at the same time; default: what fits")
    wait_for_nodes_s: float | None = Field(
        None,
        ge=0,
        description="how long to wait for nodes that do not exist yet; default: 1800 where Ray is known to start "
        "some, else 0",
    )
    pin_cpus: bool = Field(True, description="servers that share a node get CPUs of their own")
    cordon_after: int = Field(
        3, ge=1, description="trials in a row that a node spoils before it gets no more of them"
    )

    @model_validator(mode="after")
    def _whole_gpus_per_node(self) -> Resources:
        gpus = self.gpus_per_server
        if gpus and gpus > 1 and not float(gpus).is_integer():
            raise ValueError(f"gpus_per_server {gpus:g} is neither a whole number nor a share of one GPU")
        if gpus and self.nodes_per_server and gpus % self.nodes_per_server:
            raise ValueError(
                f"gpus_per_server {gpus:g} cannot be split evenly over nodes_per_server {self.nodes_per_server}"
            )
        for name in self.custom:
            if name in ("CPU", "GPU", "memory", "object_store_memory") or name.startswith(
                "accelerator_type:"
            ):
                raise ValueError(
                    f"custom.{name} is one of Ray's own resources; use the key that is meant for it"
                )
        return self


class StudyConfig(Section):
    """A whole study file."""

    study: Name
    engine: Engine
    space: Space
    workload: Workload
    measurement: Measurement = Measurement()
    search: Search = Search()
    confirmation: Confirmation = Confirmation()
    baseline: BaselineSettings = BaselineSettings()
    resources: Resources = Resources()
    storage: str | None = Field(None, description="Optuna storage URL; default: SQLite in the run directory")
    storage_timeout_s: float = Field(
        600,
        ge=1,
        description="seconds that a storage or run directory is waited for when it is locked, full or down",
    )
    runs_dir: str = Field(
        "runs",
        description="folder of the run directories; relative to where sweeper runs, in a Ray job to "
        "~/.local/share/sweeper on the driver's node",
    )
    artifacts: str | None = Field(
        None,
        description="URL (s3://, gs://, file://, ...) that the run directory is copied to after every trial, and "
        "restored from on a node that has none",
    )

    @model_validator(mode="after")
    def _objective_is_measured(self) -> StudyConfig:
        for load in self.search.objective_load or ():
            if load not in self.workload.concurrency:
                raise ValueError(f"search.objective_load {load} is not among workload.concurrency")
        for rate in self.search.objective_rate or ():
            if rate not in self.workload.request_rates:
                raise ValueError(f"search.objective_rate {rate:g} is not among workload.request_rates")
        return self

    @property
    def objective_loads(self) -> tuple[Load, ...]:
        """The loads to win at: every input length of the objective concurrencies and rates."""
        rates = self.search.objective_rate or []
        levels = self.search.objective_load or ([] if rates else self.workload.concurrency[:1])
        return tuple(x for x in self.workload.loads if x.concurrency in levels or x.rate in rates)

    @property
    def confirmed_loads(self) -> tuple[Load, ...]:
        """The loads at which finalists are measured again."""
        return self.objective_loads if self.confirmation.objective_only else self.workload.loads

    @model_validator(mode="after")
    def _ranks_split_over_the_nodes(self) -> StudyConfig:
        nodes = self.resources.nodes_per_server or 1
        if self.engine.ranks % nodes:
            raise ValueError(
                f"resources.nodes_per_server {nodes} does not divide the server's {self.engine.ranks} ranks "
                "(tensor x pipeline parallel)"
            )
        if nodes > 1 and self.engine.replicas > 1:
            raise ValueError(
                "resources.nodes_per_server: SGLang keeps the replicas of dp-size on one node unless "
                "enable-dp-attention is set"
            )
        return self

    @property
    def gpus_per_server(self) -> float:
        """All GPUs of one server, on all its nodes."""
        if self.resources.gpus_per_server is not None:
            return self.resources.gpus_per_server
        return self.engine.ranks * self.engine.replicas if self.engine.device == "cuda" else 0
