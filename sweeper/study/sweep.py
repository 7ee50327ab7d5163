"""The sweep: baseline, trials, confirmation; resumable at any moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeper.analysis.verdict import finalists, left_open
from sweeper.baseline import baseline_settings
from sweeper.errors import SweeperError
from sweeper.records import Baseline, BaselineCheck
from sweeper.search.earlier import inform
from sweeper.search.prospect import keep_prospect
from sweeper.space import Candidate
from sweeper.storage.stored_study import OBJECTIVE_LOADS, PROMPT_NOTES
from sweeper.study.baseline_arm import BaselineArm, noise_floor
from sweeper.study.confirmation import Confirmation
from sweeper.study.ending import MAX_ATTEMPTS
from sweeper.study.resume import missing_raw_data, take_up
from sweeper.study.surroundings import Surroundings
from sweeper.study.trial_loop import TrialLoop
from sweeper.study.trial_notes import study_note, write_note
from sweeper.trial.order import TrialPlan
from sweeper.trial.quality import lossy


@dataclass(frozen=True)
class Wishes:
    """What a person asks for on the command line."""

    remeasure_baseline: bool = False
    allow_lossy: bool = False
    preflight: bool = True


class Sweep:
    """One run of one study on some servers, from where the storage stands to its end."""

    def __init__(
        self,
        plan: TrialPlan,
        candidates: Sequence[Candidate],
        around: Surroundings,
        wishes: Wishes = Wishes(),
    ) -> None:
        self.plan, self.config, self.wishes = plan, plan.study, wishes
        self.driver, self.servers, self.display = around.driver, around.servers, around.display
        self.run = self.driver.run
        self.candidates = candidates
        self.trials = TrialLoop(plan, candidates, around, wishes.allow_lossy)
        self.stored = self.trials.stored

    def planned(self) -> int:
        """Launches this study may make in all."""
        return self.trials.planned()

    def drive(self) -> None:
        """From where the storage stands to the end; a study with nothing left launches nothing.

        Raises:
            StudyChangedError: the storage holds a study of this name with other settings, or of another release.
            StorageLostError: the storage or the run directory could not be written for too long.
            LeaseLostError: another driver has taken the study over.
            SweeperError: there is no baseline, since the server fails without speculation.
            KeyboardInterrupt: after the running trials were stopped and put back into the queue.
        """
        before = self.stored.get("settings") or {}
        settings = baseline_settings(self.plan, self.servers.hardware(before.get("hardware", "")))
        self.stored.begin({**settings, **self._own_settings()})
        # It can be written: from now on waiting pays.
        self.driver.patience.limit_s = self.config.storage_timeout_s
        self.run.write_study(self.config)
        self.stored.set_preflight(self.plan.preflight)
        for note in inform(self.trials.sampler, self.stored, self.config, self.run.path.parent):
            self.driver.patience.say(note)
        self._take_up()
        own = self._baseline_of_finished_trials()
        remeasure = self.wishes.remeasure_baseline
        if self.trials.wants_more() or remeasure or (own and self._unchecked()):
            try:
                self._measure(settings, own)
            finally:
                self.trials.status.close()

    def _measure(self, settings: Mapping[str, Any], own: Baseline | None) -> None:
        tick = self.trials.tick
        arm = BaselineArm(self.plan, self.servers, self.run, self.display, self.stored.add_check, tick)
        baseline = arm.get(settings, own, self.wishes.remeasure_baseline)
        self.run.write_baseline(baseline)
        self.stored.set_baseline(baseline.record)
        self.stored.set(PROMPT_NOTES, list(self.plan.prompts.notes))
        loads = [str(load) for load in self.config.objective_loads]
        self.stored.set(OBJECTIVE_LOADS, loads)
        write_note(self.stored.study, study_note(loads, baseline.record))
        checks = self.trials.to_the_end(baseline, arm)
        keep_prospect(self.trials.sampler, self.stored, self.config)
        seen = [*checks, *self._confirm(baseline)]
        tick("checking the baseline", later=1)
        arm.check_at_the_end(baseline, seen)
        self.stored.set_checked()

    def _take_up(self) -> None:
        """What an earlier driver left, put right and told to the person."""
        say, loads = self.driver.patience.say, self.config.objective_loads
        for sentence in take_up(self.stored, self.run, self.trials.by_config.keys(), loads):
            say(sentence)
        missing = missing_raw_data(self.stored, self.run)
        if missing:
            say(
                f"the raw data of {len(missing)} finished trial(s) are not in {self.run.path}, but where they were "
                "measured; `sweeper report --recompute` needs them here"
            )

    def _baseline_of_finished_trials(self) -> Baseline | None:
        """The baseline that this study's finished trials were compared with; None while there are none."""
        if not self.stored.finished():
            return None
        own = self.run.read_baseline()
        if own is None:
            raise SweeperError(
                f"run {self.run.path}: the baseline that the finished trials were compared with (baseline.json and "
                "baseline.parquet) is missing or unreadable here; continue where it was begun, or start a new study "
                "with --name"
            )
        return own

    def _unchecked(self) -> bool:
        """Whether finalists are still to be confirmed, or the baseline to be checked after the last trial."""
        return bool(self._unconfirmed()) or not self.stored.checked()

    def _unconfirmed(self) -> dict[int, Candidate]:
        """The finalists, by trial, as long as they were not all measured again often enough."""
        chosen = self._finalists()
        together = [done for done in self.stored.rounds() if chosen.keys() <= done.trials.keys()]
        return chosen if len(together) < self._rounds(chosen) else {}

    def _rounds(self, chosen: Collection[int]) -> int:
        """How often the finalists are to be measured again, as far as the rounds up to now tell."""
        asked, rounds = self.config.confirmation, self.stored.rounds()
        floor = noise_floor(self.stored.checks())
        may_win = [
            trial
            for trial in chosen
            if self.wishes.allow_lossy
            or not any(lossy(done.trials[trial], floor) for done in rounds if trial in done.trials)
        ]
        more = len(rounds) >= asked.repeats and left_open(rounds, may_win, self.config.objective_loads)
        return max(asked.repeats, asked.most_repeats) if more and asked.repeats else asked.repeats

    def _finalists(self) -> dict[int, Candidate]:
        by_config = self.trials.by_config
        chosen = finalists(self.trials.contenders(), self.config.confirmation.finalists)
        return {c.number: by_config[c.config] for c in chosen if c.config in by_config}

    def _confirm(self, baseline: Baseline) -> list[BaselineCheck]:
        """Measure the finalists and the baseline again, in turns; the checks of the baseline on the way."""
        chosen = self._unconfirmed()

        def tick(stage: str, left: int) -> None:
            rounds = self._rounds(chosen) - len(self.stored.rounds()) - 1
            self.trials.tick(stage, later=left + max(0, rounds) * (1 + len(chosen)))

        confirmation = Confirmation(self.plan, self.servers, self.run, tick)
        seen: list[BaselineCheck] = []
        spoiled = 0
        while chosen and spoiled < MAX_ATTEMPTS:
            number = len(self.stored.rounds()) + 1
            done, check = confirmation.round(number, baseline, chosen)
            self.stored.add_check(check)
            seen.append(check)
            if done is None:
                spoiled += 1
                continue
            self.stored.add_round(done)
            self.display.confirmed(done, max(done.number, self._rounds(chosen)))
            chosen = self._unconfirmed()
        return seen

    def _own_settings(self) -> dict[str, Any]:
        """What trials of one study must share besides the baseline's settings.

        The three numbers of the space may change; Optuna keeps a parameter's categories for good.
        """
        configs = [candidate.effective for candidate in self.candidates]
        return {
            "drafts": {name: draft.path for name, draft in self.config.space.drafts.items()},
            "algorithms": sorted({config.algorithm for config in configs}),
            "drafts_in_use": sorted({config.draft for config in configs}),
            "objective_loads": [str(load) for load in self.config.objective_loads],
            "options": {
                name: sorted({str(config.option(name)) for config in configs})
                for name in self.trials.sampler.options
            },
        }
