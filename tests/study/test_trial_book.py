"""What the loop knows of its trials after each of them equals what all trials together say."""

from __future__ import annotations

from collections.abc import Iterator

import optuna
import pytest
from optuna.trial import TrialState

from sweeper.analysis.intervals import LogEstimate
from sweeper.records import FailureClass, Load, TrialRecord
from sweeper.records import TrialState as State
from sweeper.search.candidates import RandomCandidates, config_from
from sweeper.server.failures import failure
from sweeper.space import Candidate
from sweeper.speculation import SpeculationConfig
from sweeper.study.ending import end_trial, enqueue, give_up
from sweeper.study.newly_ended import NewlyEnded
from sweeper.study.progress import Later, Standing, tally
from sweeper.study.skipping import pointless
from sweeper.study.trial_book import TrialBook

LOADS = (Load(1),)
CONFIGS = [SpeculationConfig("EAGLE3", draft, s, 1, s + 1) for draft in "ab" for s in range(1, 6)]
CANDIDATES = [Candidate(config, config, ()) for config in CONFIGS]


@pytest.fixture
def study() -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(sampler=RandomCandidates(CANDIDATES, seed=1), direction="maximize")


def ended(study: optuna.Study, speed: float = 1.0, kind: FailureClass | None = None, s: float = 60.0) -> int:
    """One more trial, from being asked for to its end."""
    trial = study.ask(study.sampler.space)
    config = config_from(trial.params)
    trial.set_user_attr("config", str(config))
    state = State.FAILED if kind else State.COMPLETE
    why = failure(kind, "planted") if kind else None
    record = TrialRecord(config, config, state, failure=why, start_s=s / 2, measure_s=s / 2)
    speedups = {} if kind else {LOADS[0]: LogEstimate(speed, 0.01, 30)}
    end_trial(study, trial, record, speedups, LOADS)
    return trial.number


def test_the_best_lower_bound_comes_first_and_counts_are_kept(study: optuna.Study) -> None:
    book = TrialBook(LOADS)
    numbers = [ended(study, speed) for speed in (1.2, 1.6, 0.8)]
    ended(study, kind=FailureClass.CRASH)
    book.update(study.trials)
    ended(study, 1.4)
    book.update(study.trials)
    assert [c.speedup.value for c in book.contenders(None, False)] == pytest.approx([1.6, 1.4, 1.2, 0.8])
    assert next(book.contenders(None, False)).number == numbers[1]
    seen = tally(book.ended, Standing(10, [20.0], 2))
    assert (seen.complete, seen.failed, seen.best and seen.best[1]) == (4, 1, pytest.approx(1.6))
    assert seen.eta_s == pytest.approx(((10 - 5) * 60 - 20) / 2)


def test_a_clock_that_jumps_does_not_change_how_long_the_rest_takes(study: optuna.Study) -> None:
    book = TrialBook(LOADS)
    ended(study)
    [trial] = study.get_trials(deepcopy=False)
    trial.datetime_complete = trial.datetime_start.replace(year=2050)  # type: ignore[union-attr]
    book.update([trial])
    assert tally(book.ended, Standing(3, [], 1)).eta_s == pytest.approx(120)
    # Four launches more, of one load of three: 30 s to start, 10 s to measure; 15 s of the first are over.
    assert tally(book.ended, Standing(3, [], 2, "", Later(4, 1 / 3, 15))).eta_s == pytest.approx(
        60 + 160 - 15
    )


def test_what_was_put_back_counts_as_not_launched(study: optuna.Study) -> None:
    book = TrialBook(LOADS)
    ended(study, kind=FailureClass.LOST)  # goes back into the queue
    give_up(study, study.ask(study.sampler.space), "the driver ended")
    enqueue(study, {**study.trials[0].params}, 1)
    book.update(study.trials)
    assert (book.ended.trials, book.launched(), book.queued()) == (0, 0, 1)
    study.ask(study.sampler.space)
    book.update(study.trials)
    assert (book.launched(), book.queued()) == (1, 0)


def test_each_trial_is_looked_at_once_when_it_has_ended(study: optuna.Study) -> None:
    newly = NewlyEnded()
    first, second = study.ask(study.sampler.space), study.ask(study.sampler.space)
    assert newly(study.trials) == []
    study.tell(second, 1.0)
    assert [t.number for t in newly(study.trials)] == [second.number]
    study.tell(first, state=TrialState.FAIL)
    third = study.ask(study.sampler.space)
    assert [t.number for t in newly(study.trials)] == [first.number]
    assert [t.number for t in newly.open] == [third.number]


def test_the_sampler_proposes_every_candidate_once_and_again_what_was_put_back(study: optuna.Study) -> None:
    sampler = study.sampler
    assert isinstance(sampler, RandomCandidates)
    for left in range(len(CONFIGS), 0, -1):
        assert len(sampler.remaining(study)) == left
        ended(study)
    assert sampler.remaining(study) == []
    assert len({config_from(t.params) for t in study.trials}) == len(CONFIGS)


def test_a_driver_that_died_gives_its_candidate_back(study: optuna.Study) -> None:
    sampler = study.sampler
    assert isinstance(sampler, RandomCandidates)
    trial = study.ask(sampler.space)
    assert len(sampler.remaining(study)) == len(CONFIGS) - 1
    give_up(study, trial, "INTERRUPTED")
    assert len(sampler.remaining(study)) == len(CONFIGS)


def records(*told: tuple[SpeculationConfig, FailureClass | None]) -> Iterator[tuple[int, TrialRecord]]:
    for number, (config, kind) in enumerate(told):
        state = State.FAILED if kind else State.COMPLETE
        why = failure(kind, "planted") if kind else None
        yield number, TrialRecord(config, config, state, failure=why)


def test_a_draft_that_cannot_load_spares_its_other_configs_and_no_more() -> None:
    told = list(records((CONFIGS[0], FailureClass.DRAFT_MISSING), (CONFIGS[7], FailureClass.CRASH)))
    skipped = pointless(CONFIGS[1:], told)
    assert skipped.keys() == {*CONFIGS[1:5], CONFIGS[7]}
    assert skipped[CONFIGS[1]] == "fails as trial 0 did: DRAFT_MISSING: planted"
    assert pointless(CONFIGS[1:], list(records((CONFIGS[3], None)))) == {
        CONFIGS[3]: "is what the server of trial 0 ran"
    }
