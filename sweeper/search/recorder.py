"""``sweeper record``: launches every config of a study again and again until each is known well: a landscape.

It goes on where it was stopped: every launch is a line in ``passes.jsonl`` before anything else happens.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sweeper.baseline import baseline_settings
from sweeper.errors import SweeperError
from sweeper.records import TrialRecord, TrialState
from sweeper.runs.whole_files import write_whole
from sweeper.search.landscape import Landscape, write_landscape
from sweeper.search.passes import Pass, append_pass, pass_from, read_passes
from sweeper.search.pooling import Round, Together, entry, point, this_round, together
from sweeper.server.checkpoint import checkpoint_identity
from sweeper.server.failures import ADVICE, Remedy
from sweeper.space import Candidate
from sweeper.speculation import NO_SPECULATION, SpeculationConfig
from sweeper.study.hot_swaps import HotSwaps
from sweeper.study.surroundings import NO_CANDIDATE, Servers
from sweeper.trial.order import TrialOrder, TrialPlan

MOST_LOST = 5
"""Launches in a row that say nothing of their config, before recording gives up."""


@dataclass(frozen=True)
class Goal:
    """``half_width``: relative, of every rate's 95 % interval. ``seconds``: no launch begins after so many of them."""

    half_width: float = 0.015
    seconds: float = float("inf")


@dataclass(frozen=True)
class Progress:
    """How far a landscape is: launches and hot swaps made, configs measured at all, and those known well enough."""

    launches: int
    launched: int
    precise: int
    configs: int
    notice: str = ""
    """What a person should know of the launch that ended last."""


class Recorder:
    """Measures ``candidates`` into ``folder``; ``tell`` hears of every launch that ends."""

    def __init__(
        self,
        plan: TrialPlan,
        candidates: Sequence[Candidate],
        servers: Servers,
        folder: Path,
        tell: Callable[[Pass, Progress], None],
    ) -> None:
        self.plan, self.servers, self.folder, self.tell = plan, servers, folder, tell
        self.candidates = {candidate.effective: candidate for candidate in candidates}
        self.loads = [str(load) for load in plan.study.workload.loads]
        self.passes = read_passes(folder / "passes.jsonl")
        self.swaps = HotSwaps(plan, candidates, ordered=True)
        self.running: dict[str, SpeculationConfig] = {}
        self._begun = 0

    def require_same_settings(self) -> None:
        """Passes of one landscape compare only under equal settings: those of its first one.

        Raises:
            SweeperError: the earlier ones were made under others.
        """
        drafts = {name: checkpoint_identity(d.path) for name, d in self.plan.study.space.drafts.items()}
        wanted = {**baseline_settings(self.plan, self.servers.hardware()), "drafts": drafts}
        text = json.dumps(wanted, indent=1, sort_keys=True, default=str)
        path = self.folder / "settings.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text.encode())
            return
        before, now = json.loads(path.read_bytes()), json.loads(text)
        changed = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if changed:
            raise SweeperError(
                f"{self.folder}: its launches were made under other settings ({', '.join(changed)}); record under "
                "another study name, or put them back"
            )

    def record(self, goal: Goal) -> Progress:
        """Launch until every config is known within the goal, or its time is over.

        Raises:
            SweeperError: launch after launch is lost by no fault of its config, or a server runs another config.
            KeyboardInterrupt: stopped; running launches are dropped.
        """
        until = time.monotonic() + goal.seconds
        lost = 0
        if self._round(goal).configs:  # rounds follow in which everything is measured once more
            self.swaps.expect(self.candidates, len(self.candidates))
        while True:
            while time.monotonic() < until and (idle := self.servers.idle()) and self._start(goal, idle[0]):
                pass
            if not self.running:
                return self.progress(goal)
            for tag, result in self.servers.wait(1.0):
                config = self.running.pop(tag)
                self.swaps.ended(result.server, config, result.kept)
                lost = 0 if self._take(config, result.record, goal) else lost + 1
                if lost >= MOST_LOST:
                    why = result.record.failure.message if result.record.failure else ""
                    raise SweeperError(f"{lost} launches in a row were lost, the last: {why}")

    def _take(self, config: SpeculationConfig, record: TrialRecord, goal: Goal) -> bool:
        """Keep what a launch came to; False where it says nothing of its config."""
        if record.state is TrialState.INTERRUPTED:
            raise KeyboardInterrupt
        plain = config == NO_SPECULATION
        if record.failure and (plain or ADVICE[record.failure.kind].remedy is Remedy.ELSEWHERE):
            return False
        if not record.failure and record.effective != config:
            raise SweeperError(
                f"the server of {config} runs {record.effective} instead, against the known rules; take it out of the "
                "study file's space"
            )
        done = pass_from(len(self.passes), config, record)
        append_pass(self.folder / "passes.jsonl", done)
        self.passes.append(done)
        self.tell(done, replace(self.progress(goal), notice=self.swaps.saw(record)))
        return True

    def _round(self, goal: Goal) -> Round:
        return this_round(
            self.passes, list(self.candidates), list(self.running.values()), goal.half_width, self.loads
        )

    def _start(self, goal: Goal, server: str) -> bool:
        """Begin the next launch, or hot swap, on an idle server; False where nothing is left."""
        now = self._round(goal)
        config = now.next(self.swaps.near(server, lambda: now.configs))
        if config is None:
            return False
        self._begun += 1
        tag = f"pass-{len(self.passes):05d}-{self._begun}"
        self.running[tag] = config
        # Every round has launches of its own: repeats on one launch would not tell how launches differ.
        swap = self.swaps.order(config, server, lambda: (c for c in now.configs if c != config), None)
        candidate = self.candidates.get(config, NO_CANDIDATE)
        order = TrialOrder(candidate, self.plan.study.workload.loads, hot_swap=swap)
        self.servers.start(tag, order, server)
        return True

    def progress(self, goal: Goal) -> Progress:
        known = [together(self.passes, load) for load in self.loads]
        launched = {done.config for done in self.passes} & self.candidates.keys()
        failed = {done.config for done in self.passes if done.failure}
        precise = sum(
            config in failed
            or all(config in rates and rates[config].half_width <= goal.half_width for rates in known)
            for config in launched
        )
        return Progress(
            len(self.passes),
            len(launched),
            precise,
            len(self.candidates),
        )

    def landscape(self, about: str) -> Landscape | None:
        """What there is so far, of the configs that were launched; None before the baseline and a config were."""
        rates = {load: together(self.passes, load) for load in self.loads}
        plain = [done for done in self.passes if done.config == NO_SPECULATION]
        baseline = {load: found[NO_SPECULATION] for load, found in rates.items() if NO_SPECULATION in found}
        entries = [
            made
            for config in self.candidates
            if (made := entry(config, self.passes, _rates(config, rates))) is not None
        ]
        if len(baseline) < len(self.loads) or not entries:
            return None
        return Landscape(
            name=self.plan.study.study,
            origin="recorded",
            about=about,
            hardware=self.servers.hardware().key,
            server_version=self.plan.setup.version,
            baseline={load: point(load, plain, rate) for load, rate in baseline.items()},
            entries=tuple(entries),
        )


def _rates(
    config: SpeculationConfig, rates: dict[str, dict[SpeculationConfig, Together]]
) -> dict[str, Together | None]:
    return {load: found.get(config) for load, found in rates.items()}


def write_what_there_is(recorder: Recorder, goal: Goal, path: Path) -> bool:
    """Write the landscape, with how good it is in its own words; False where there is none yet."""
    progress = recorder.progress(goal)
    swaps = sum(not done.launched for done in recorder.passes)
    about = (
        f"{recorder.plan.study.engine.model}: {progress.launched} of {progress.configs} configs launched, "
        f"{progress.launches - swaps} launches, {swaps} hot swaps, {progress.precise} configs known within "
        f"{goal.half_width:.1%} at every load"
    )
    made = recorder.landscape(about)
    if made is None:
        return False
    write_landscape(made, path)
    return True
