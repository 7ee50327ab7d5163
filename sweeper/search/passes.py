"""Every launch that was made for a landscape: a line each in ``passes.jsonl``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sweeper.records import FailureClass, TrialRecord
from sweeper.speculation import SpeculationConfig

BASELINE_EVERY = 8
"""Launches between two baselines."""
UNKNOWN = 10.0
"""Half-width of a rate of which nothing is known: the interval of very few requests has no end."""


@dataclass(frozen=True)
class PassPoint:
    """One launch at one load; ``half_width`` of the rate's 95 % interval, relative."""

    output_tok_s: float
    half_width: float
    accept_length: float
    step_time_s: float
    histogram: tuple[int, ...]


@dataclass(frozen=True)
class Pass:
    """One launch of a config, the ``number``-th of all. ``points`` by load.

    Not ``launched``: a server that ran a sibling took the draft's weights; ``start_s`` is what that took.
    """

    number: int
    config: SpeculationConfig
    start_s: float
    measure_s: float
    points: Mapping[str, PassPoint]
    failure: FailureClass | None = None
    started_at: str = ""
    launched: bool = True
    why: str = ""
    """It failed."""

    @property
    def block(self) -> int:
        """Which stretch of time it belongs to: those between two baselines."""
        return self.number // BASELINE_EVERY


def pass_from(number: int, config: SpeculationConfig, record: TrialRecord) -> Pass:
    """What the record of a config's launch says; a failed one has no points."""
    points = {
        str(point.load): PassPoint(
            point.output_tok_s.value,
            min(point.output_tok_s.high / point.output_tok_s.value - 1, UNKNOWN),
            point.accept_length.value,
            point.step_time_s,
            point.histogram,
        )
        for point in record.load_points
    }
    failure = record.failure.kind if record.failure else None
    return Pass(
        number,
        config,
        record.start_s,
        record.measure_s,
        {} if failure else points,
        failure,
        record.started_at,
        record.launched,
        record.failure.message if record.failure else "",
    )


def append_pass(path: Path, done: Pass) -> None:
    """A line more in the file of passes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(done)) + "\n")


def read_passes(path: Path) -> list[Pass]:
    """All that were made; a line that a killed recorder left half-written is none."""
    found = []
    for line in path.read_text("utf-8").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        config = row.pop("config")
        options = tuple((str(name), value) for name, value in config.pop("options"))
        points = {
            load: PassPoint(**{**point, "histogram": tuple(point["histogram"])})
            for load, point in row.pop("points").items()
        }
        failure = FailureClass(row.pop("failure")) if row["failure"] else row.pop("failure")
        found.append(
            Pass(config=SpeculationConfig(**config, options=options), points=points, failure=failure, **row)
        )
    return found
