"""``python -m benchmarks.interleaved_landscape FILE --out DIR [--laps 3] [--servers 22]``: for a moody machine.

A landscape of the configs of a study file, like `sweeper record`'s, but with servers of many shapes up at the same time
(0.85 GiB each), of which one is awake: for a tenth of a second, then the next one. The speed of shared cores changes at
all time scales, so a measurement of seconds is off by what the machine does in these seconds, however often; in turns
of tenths, what it does hits all alike. How far that helps: docs/search.md.

A lap takes every server to every load, with one draft of several that take turns on it (hot swap); each draft gets the
same prompts, before the next ones come. Every visit is a line of DIR/visits.jsonl, in awake time; running it again
launches the shapes that were visited least, and goes on. DIR/landscape.json has the configs that were measured at all
loads with the prompts that most configs got: step rates by benchmarks/mixed_model.py from all their visits, times the
tokens per step over those prompts, which is what greedy decoding gives. Half-widths are of the step rates, against the
mean of all configs, since only comparisons count; ``scatter`` is that of visits, mood and launch included.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.mixed_model import EFFECTS, StepRates, step_rates
from benchmarks.side_by_side import Visit, read, record
from sweeper.config import StudyConfig
from sweeper.node.hardware import visible_hardware
from sweeper.records import Load
from sweeper.search.landscape import Landscape, write_landscape
from sweeper.search.passes import UNKNOWN, Pass, PassPoint
from sweeper.search.pooling import Together, entry, point
from sweeper.server.prepare import look_up
from sweeper.space import enumerate_space
from sweeper.speculation import NO_SPECULATION, SpeculationConfig
from sweeper.study_file.reading import load_study_file


def blocks(visits: Sequence[Visit], config: SpeculationConfig, study: StudyConfig) -> set[int]:
    """The blocks of prompts that a config was given at every load."""
    seen = {(v.block, v.load) for v in visits if v.config == str(config)}
    loads = [str(load) for load in study.workload.loads]
    return {block for block, _ in seen if all((block, load) in seen for load in loads)}


def passes_of(
    visits: Sequence[Visit], configs: Sequence[SpeculationConfig], rates: Mapping[str, StepRates]
) -> list[Pass]:
    """A lap's visits to one server as one pass."""
    by_name = {str(config): config for config in configs}
    laps: dict[tuple[int, int, str], list[Visit]] = {}
    for visit in visits:
        if visit.config in by_name:
            laps.setdefault((visit.launch, visit.lap, visit.config), []).append(visit)

    def measured(visit: Visit) -> PassPoint:
        found = rates[visit.load]
        return PassPoint(
            visit.step_rate * visit.tokens_per_step / math.exp(found.mood(visit.group)),
            UNKNOWN,
            visit.accept_length,
            math.exp(-found.pace.value[visit.config]),
            visit.histogram,
        )

    return [
        Pass(
            number,
            by_name[name],
            own[0].start_s,
            sum(v.seconds for v in own),
            {v.load: measured(v) for v in own},
        )
        for number, ((_, _, name), own) in enumerate(laps.items())
    ]


def landscape(study: StudyConfig, configs: Sequence[SpeculationConfig], visits: Sequence[Visit]) -> Landscape:
    """Of those ``configs`` that were measured at all loads with the block of prompts that most of them got.

    Raises:
        ValueError: there is none, or too few visits.
    """
    got = {config: blocks(visits, config, study) for config in configs}
    most = [block for block, _ in Counter(b for each in got.values() for b in each).most_common(1)]
    whole = [config for config in configs if most and most[0] in got[config]]
    wanted = set.intersection(*(got[config] for config in whole)) if whole else set()
    if not whole or not blocks(visits, NO_SPECULATION, study):
        raise ValueError("no config and the plain server were measured at all loads yet; it takes more laps")
    by_name = {str(c): c for c in (NO_SPECULATION, *configs)}
    loads = [str(load) for load in study.workload.loads]
    found = {load: step_rates([v for v in visits if v.load == load], by_name) for load in loads}
    # The plain server makes one token per step of any prompts.
    same_prompts = [v for v in visits if v.block in wanted or v.config == str(NO_SPECULATION)]
    passes = passes_of(same_prompts, [NO_SPECULATION, *whole], found)

    def rate(config: SpeculationConfig, load: str) -> Together:
        rates, name = found[load], str(config)
        own = [v.tokens_per_step for v in same_prompts if (v.config, v.load) == (name, load)]
        tokens = 1 / float(np.mean([1 / value for value in own]))
        half_width = 1.96 * rates.error(name)
        return Together(math.exp(rates.value(name)) * tokens, half_width, scatter(rates), len(own))

    plain = [done for done in passes if done.config == NO_SPECULATION]
    entries = [entry(config, passes, {load: rate(config, load) for load in loads}) for config in whole]
    told = "; ".join(
        f"{load}: " + ", ".join(f"{name} {found[load].effect(name):.3g}" for name in EFFECTS)
        for load in loads
    )
    return Landscape(
        name=study.study,
        origin="recorded",
        about=f"servers side by side, {len(visits)} visits; standard deviations of ln step rate at {told}",
        hardware=visible_hardware(study.engine.device).key,
        server_version=look_up(study).version,
        baseline={load: point(load, plain, rate(NO_SPECULATION, load)) for load in loads},
        entries=tuple(made for made in entries if made is not None),
    )


def scatter(rates: StepRates) -> float:
    """Standard deviation of ln rate of a visit that is not corrected for anything."""
    sizes = [rates.effect(name) for name in ("mood", "launch", "rest")]
    return math.hypot(*(size for size in sizes if not math.isnan(size)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", default="", help="configs that match this regular expression, like ' p100 '"
    )
    parser.add_argument("--laps", type=int, default=3, help="over the servers; 0: only compute")
    parser.add_argument("--servers", type=int, default=22, help="that speculate, up at the same time")
    asked = parser.parse_args()
    study = load_study_file(asked.file)
    configs = [c.effective for c in enumerate_space(study.space).candidates]
    asked.out.mkdir(parents=True, exist_ok=True)
    path = asked.out / "visits.jsonl"
    if asked.laps:
        record(study, [c for c in configs if re.search(asked.only, str(c))], path, asked.laps, asked.servers)
    try:
        made = landscape(study, configs, read(path))
    except ValueError as problem:
        parser.error(str(problem))
    write_landscape(made, asked.out / "landscape.json")
    print(made.about)
    for load in made.baseline:
        best = max(made.entries, key=lambda e: e.points[load].output_tok_s)
        widths = [e.points[load].half_width for e in made.entries]
        print(
            f"{load}: {best.config} {made.speedup(best, Load.parse(load)):.3f}, half-widths {min(widths):.1%} to "
            f"{max(widths):.1%}, baseline {made.baseline[load].half_width:.1%}"
        )


if __name__ == "__main__":
    main()
