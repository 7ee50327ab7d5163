"""A landscape: what every config of a space was measured to do, so that searches are compared on equal data.

Loads are keyed by their names (``c=4``). ``origin`` says where the numbers come from, and every table that is made from
a landscape must say so, too:

* ``recorded``: by ``sweeper record``, on real servers;
* ``synthetic``: computed from a stated process; no server ran;
* ``published``: read from somebody's table, on their hardware.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sweeper.errors import SweeperError
from sweeper.records import FailureClass, Load
from sweeper.runs.whole_files import write_whole
from sweeper.space import Candidate
from sweeper.speculation import NO_DRAFT, SpeculationConfig, Value

Positive = Annotated[float, Field(gt=0)]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Point(Section):
    """One config at one load: means over ``passes`` launches.

    ``half_width`` is that of the rate's 95 % interval, ``scatter`` the standard deviation of a single launch's rate;
    both are relative.
    """

    output_tok_s: Positive
    half_width: float = Field(ge=0)
    scatter: float = Field(ge=0)
    accept_length: float = Field(ge=1)
    step_time_s: Positive
    histogram: tuple[int, ...] = ()
    passes: int = Field(1, ge=1)


class Entry(Section):
    """One config: its points by load, or why it fails. ``start_s`` and ``measure_s`` are what a launch costs."""

    algorithm: str
    draft: str = NO_DRAFT
    num_steps: int
    topk: int
    num_draft_tokens: int
    options: tuple[tuple[str, Value], ...] = ()
    start_s: float = Field(ge=0)
    measure_s: float = Field(ge=0)
    points: Mapping[str, Point] = Field(default_factory=dict)
    failure: FailureClass | None = None

    @property
    def config(self) -> SpeculationConfig:
        return SpeculationConfig(
            self.algorithm, self.draft, self.num_steps, self.topk, self.num_draft_tokens, self.options
        )


class Landscape(Section):
    """A whole space at several loads, and the baseline there."""

    format: Literal[1] = 1
    name: str
    origin: Literal["recorded", "synthetic", "published"]
    about: str
    hardware: str = ""
    server_version: str = ""
    baseline: Mapping[str, Point]
    entries: tuple[Entry, ...]

    @model_validator(mode="after")
    def _complete(self) -> Landscape:
        if not self.baseline:
            raise ValueError("the baseline has no load")
        seen: set[SpeculationConfig] = set()
        for entry in self.entries:
            if entry.config in seen:
                raise ValueError(f"{entry.config} stands there twice")
            seen.add(entry.config)
            if entry.failure is None and (missing := self.baseline.keys() - entry.points.keys()):
                raise ValueError(f"{entry.config} has no point at {', '.join(sorted(missing))}")
        return self

    @property
    def loads(self) -> tuple[Load, ...]:
        return tuple(Load.parse(name) for name in self.baseline)

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        return tuple(Candidate(entry.config, entry.config, ()) for entry in self.entries)

    def scattering(self, scatter: float) -> Landscape:
        """The same with rates that differ by so much, relative, from launch to launch."""

        def noisy(points: Mapping[str, Point]) -> dict[str, Point]:
            return {load: point.model_copy(update={"scatter": scatter}) for load, point in points.items()}

        entries = (entry.model_copy(update={"points": noisy(entry.points)}) for entry in self.entries)
        return self.model_copy(update={"baseline": noisy(self.baseline), "entries": tuple(entries)})

    def speedup(self, entry: Entry, load: Load) -> float:
        """Over the baseline at the same load; 0 for a config that fails."""
        if entry.failure:
            return 0.0
        return entry.points[str(load)].output_tok_s / self.baseline[str(load)].output_tok_s


def read_landscape(path: Path) -> Landscape:
    """Raises SweeperError where there is none at ``path``, or what stands there is no landscape."""
    try:
        return Landscape.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SweeperError(f"{path}: {error.strerror or error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise SweeperError(
            f"{path} is no landscape: {first['msg']} (at {where}); `sweeper record` makes them"
        ) from None


def write_landscape(landscape: Landscape, path: Path) -> None:
    """All at once; one line per config, so that versions compare."""
    rows = landscape.model_dump(mode="json", exclude_defaults=True)
    entries = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows.pop("entries", ()))
    head = json.dumps({"format": landscape.format, **rows}, indent=1)
    write_whole(path, f'{head[:-2]},\n "entries": [\n{entries}\n]}}\n'.encode())


def read_landscapes(given: Sequence[Path]) -> list[Landscape]:
    """Those in files and folders. Raises SweeperError where there is none, or two have one name."""
    files = [file for path in given for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    if not files:
        raise SweeperError(f"{given[0]}: no landscape there; `sweeper record` makes them")
    found = [read_landscape(file) for file in files]
    names = [landscape.name for landscape in found]
    for name in names:
        if names.count(name) > 1:
            raise SweeperError(f"two of these landscapes are called {name!r}")
    return found
