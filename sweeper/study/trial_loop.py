"""The ask/tell loop: keeps every server busy with trials, and every result safe from the moment it comes in."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Sequence

import optuna

from sweeper.analysis.verdict import Contender
from sweeper.errors import LeaseLostError, StorageLostError
from sweeper.records import Baseline, BaselineCheck, Load, TrialResult
from sweeper.search import make_sampler
from sweeper.search.candidates import config_from
from sweeper.space import Candidate
from sweeper.speculation import NO_SPECULATION, SpeculationConfig
from sweeper.storage.stored_study import SKIPPED, StoredStudy
from sweeper.storage.stored_trial import SERVER, label
from sweeper.study.arrivals import Arrivals
from sweeper.study.baseline_arm import BaselineArm, noise_floor
from sweeper.study.ending import end_trial, give_up
from sweeper.study.hot_swaps import HotSwaps
from sweeper.study.live_status import StatusFile, server_statuses
from sweeper.study.progress import Later, Standing, tally
from sweeper.study.pruning import Bar
from sweeper.study.skipping import pointless
from sweeper.study.surroundings import Surroundings, Tally
from sweeper.study.trial_book import TrialBook
from sweeper.trial.order import TrialOrder, TrialPlan

STOP_S = 60.0
"""How long running trials have to end when the sweep stops."""

TICK_S = 0.5
"""Between two looks at what all servers do: there may be hundreds, and a result every moment."""

LAST_WORDS_S = 10.0
"""How long a storage that fails is waited for then: results lie in the run directory already."""


class TrialLoop:
    """The trials of one study, from where the storage stands to the end of the space or of the budget."""

    def __init__(
        self, plan: TrialPlan, candidates: Sequence[Candidate], around: Surroundings, allow_lossy: bool
    ) -> None:
        self.plan, self.config, self.allow_lossy = plan, plan.study, allow_lossy
        self.driver, self.servers, self.display = around.driver, around.servers, around.display
        self.by_config = {c.effective: c for c in candidates}
        self.sampler = make_sampler(self.config.search, candidates, self.config.objective_loads)
        self.study = optuna.create_study(
            study_name=self.config.study,
            storage=self.driver.storage,
            sampler=self.sampler,
            direction="maximize",
            load_if_exists=True,
        )
        self.stored = StoredStudy(self.study)
        self.swaps = HotSwaps(plan, candidates, ordered=self._may_take_any_order())
        self.book = TrialBook(self.config.objective_loads)
        self.running: dict[str, tuple[optuna.Trial, float]] = {}
        self.arrivals = Arrivals(self.driver.run, self.servers, self.running)
        self.configs: dict[str, str] = {}
        self.status = StatusFile(self.driver.run.path, self.config.study)
        self.stage, self._staged_at = "baseline", 0.0
        self._later = self._launches_after()
        self._ticked_at = 0.0
        self._looked = False

    def tick(self, stage: str = "", later: int | None = None) -> None:
        """Show where the sweep stands. ``later``: launches that follow the trials, where these are over.

        Raises:
            LeaseLostError: another driver has the study.
        """
        self.driver.check()
        now = time.monotonic()
        if later is not None:
            self._later = later
            self._staged_at = self._staged_at if stage == self.stage else now
        self.stage = stage or self.stage
        if now - self._ticked_at < TICK_S:
            return
        self._ticked_at = now
        for notice in self.servers.notices():
            self._tell(notice)
        glances, tally = self.servers.glances(), self.tally()
        self.display.tick(tally, {tag: str(glance) for tag, glance in glances.items()})
        self.status.write(tally, server_statuses(glances, self.configs))

    def _tell(self, notice: str) -> None:
        if notice:
            self.driver.patience.say(notice)
            self.stored.add_notice(notice)

    def tally(self) -> Tally:
        now = time.monotonic()
        spent = [now - started for _, started in self.running.values()]
        self._look()
        share = len(self.config.confirmed_loads) / len(self.config.workload.loads)
        later = Later(self._later, share, now - self._staged_at if self._staged_at else 0.0)
        return tally(self.book.ended, Standing(self.planned(), spent, self.servers.size(), self.stage, later))

    def _launches_after(self) -> int:
        """What follows the trials, as far as one can tell: rounds of confirmation, or one look at the baseline."""
        asked = self.config.confirmation
        return max(1, asked.repeats * (1 + asked.finalists))

    def _look(self) -> None:
        """Take in what has changed in the storage; leave out candidates whose launch could teach nothing."""
        ended = self.book.update(self.stored.trials())
        for _, record in ended:
            self._tell(self.swaps.saw(record))
        preflight = () if self._looked else self.plan.preflight
        self._looked = True
        if not ended and not preflight:
            return
        untried = [candidate.effective for candidate in self.sampler.remaining(self.study)]
        new = pointless(untried, ended, preflight)
        self.sampler.skipped |= new
        if new:
            self.stored.set(SKIPPED, {str(config): why for config, why in self.sampler.skipped.items()})
            self.display.skipped(new)

    def _may_take_any_order(self) -> bool:
        """Whether cheap launches may come first: the sampler weighs costs, or everything is launched anyway."""
        search = self.config.search
        return search.sampler == "structural" or (search.max_trials or len(self.by_config)) >= len(
            self.by_config
        )

    def planned(self) -> int:
        """Launches this study may make in all."""
        limit = self.config.search.max_trials
        there = len(self.by_config) - len(self.sampler.skipped)
        return min(limit or there, there)

    def wants_more(self) -> bool:
        return self._left() > 0

    def _left(self) -> int:
        """Launches that are still to be made."""
        self._look()
        allowed = self.planned() - self.book.launched()
        if allowed <= 0:
            return 0
        untried = 0 if self.sampler.enough(self.study) else len(self.sampler.remaining(self.study))
        return min(allowed, self.book.queued() + untried)

    def contenders(self) -> list[Contender]:
        """The complete trials that may win: those that keep the target's output, unless a person allows others.

        The one with the highest lower bound comes first.
        """
        return list(self._contenders())

    def _contenders(self) -> Iterator[Contender]:
        self._look()
        return self.book.contenders(noise_floor(self.stored.checks()), self.allow_lossy)

    def to_the_end(self, baseline: Baseline, arm: BaselineArm) -> list[BaselineCheck]:
        """Run trials until the budget or the space is used up.

        A server that is new shows first that it compares. One that has nothing left to do while others still measure
        is checked for the last time and given back; returns these checks.
        """
        self.stage = ""
        canaries: dict[str, str] = {}
        last: dict[str, BaselineCheck] = {}
        self.arrivals.begin(self.stored.identity, baseline)
        self.swaps.expect(self._untried(), self._left())
        self.driver.patience.meanwhile = self.arrivals.use_the_time
        try:
            while self.wants_more() or self.running or canaries:
                self.servers.need(max(1, self._left() + len(self.running) + len(canaries)))
                for server in self.servers.idle():
                    more = self.wants_more()
                    if more and server in arm.equal:
                        last.pop(server, None)
                        self._start_next(baseline, server)
                    elif more or (server in arm.equal and server not in last and (self.running or canaries)):
                        when = "start" if more else "end"
                        self.swaps.ended(server, NO_SPECULATION, kept=False)
                        tag, order = arm.canary(baseline, when, server)
                        self.servers.start(tag, order, server)
                        canaries[tag] = when
                for tag, result in self.arrivals.take(1.0):
                    if tag not in canaries:
                        self._finish(tag, result)
                        continue
                    when = canaries.pop(tag)
                    self.driver.run.write_result(tag, result)
                    check = arm.judge(baseline, when, result)
                    if when == "end":
                        last[check.server] = check
                    elif check.beyond_tolerance:
                        arm.turn_away(check)
                self._dismiss(last)
                self.tick()
            return list(last.values())
        except KeyboardInterrupt:
            self._wind_up(storing=True)
            raise
        except (StorageLostError, LeaseLostError):
            self._wind_up(storing=False)
            raise
        finally:
            self.driver.patience.meanwhile = None

    def _dismiss(self, checked: Container[str]) -> None:
        """Give back idle servers that were checked for the last time, as long as another one is there."""
        for server in self.servers.idle() if not self.wants_more() else ():
            if server in checked and self.servers.size() > 1:
                self.servers.dismiss(server)

    def _start_next(self, baseline: Baseline, server: str) -> None:
        self.sampler.near = self.swaps.near(server, self._untried)
        trial = self.study.ask(self.sampler.space)
        config = config_from(trial.params)
        candidate = self.by_config.get(config)
        if candidate is None:  # queued before the study file changed
            give_up(self.study, trial, "no longer in the study file's space")
            return
        taken = self.sampler.taken(self.study)
        if config in taken.for_good or config in taken.by_open(besides=trial.number):
            # queued twice, since an answer was lost
            give_up(self.study, trial, "another trial has this config")
            return
        trial.set_user_attr("config", str(candidate.effective))
        trial.set_user_attr(SERVER, server)
        tag = label(trial.number)
        self.running[tag] = (trial, time.monotonic())
        self.configs[tag] = str(candidate.effective)
        floor = noise_floor(self.stored.checks())
        order = TrialOrder(
            candidate,
            self._loads(),
            baseline.outputs,
            self._bar(baseline),
            repeats=baseline.repeatability,
            hot_swap=self.swaps.order(config, server, self._untried, floor),
        )
        self.servers.start(tag, order, server)

    def _untried(self) -> list[SpeculationConfig]:
        """What could be launched after all that runs; nothing where the budget is used up."""
        return (
            [candidate.effective for candidate in self.sampler.remaining(self.study)] if self._left() else []
        )

    def _loads(self) -> tuple[Load, ...]:
        """The objective loads first, so that a hopeless config ends there."""
        first = self.config.objective_loads
        return (*first, *(load for load in self.config.workload.loads if load not in first))

    def _bar(self, baseline: Baseline) -> Bar | None:
        """What a trial must be able to reach: the lower bound of the best config so far, or no speculation."""
        if not self.config.search.prune:
            return None
        best = next(self._contenders(), None)
        least, holder = (best.speedup.low, f"trial {best.number}") if best else (1.0, "")
        if least <= 1.0:
            least, holder = 1.0, "no speculation"
        requests = {load: baseline.requests_at(load) for load in self.config.objective_loads}
        return Bar(requests, least, holder, baseline.repeatability)

    def _finish(self, tag: str, result: TrialResult) -> None:
        """A result goes into the run directory first: from then on it needs no storage to be safe."""
        trial = self.running.pop(tag)[0]
        speedups = self.arrivals.keep(tag, trial.number, result)
        self.swaps.ended(result.server, config_from(trial.params), result.kept)
        end_trial(self.study, trial, result.record, speedups, self.config.objective_loads)
        self.display.finished(trial.number, result.record, speedups)
        self._look()

    def _wind_up(self, storing: bool) -> None:
        """Stop the running trials and keep what they measured; without ``storing`` in the run directory alone."""
        self.driver.patience.limit_s = LAST_WORDS_S
        self.servers.interrupt()
        deadline = time.monotonic() + STOP_S
        while self.running and time.monotonic() < deadline:
            for tag, result in self.arrivals.take(1.0):
                if tag not in self.running:  # a canary
                    continue
                try:
                    if storing:
                        self._finish(tag, result)
                    else:
                        self.arrivals.keep(tag, self.running.pop(tag)[0].number, result)
                except StorageLostError as error:
                    storing = False
                    self.driver.patience.say(str(error))
        for loss in self.arrivals.rescue():
            self.driver.patience.say(loss)
