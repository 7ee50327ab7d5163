"""What optuna-dashboard and optuna.visualization are given beside the attributes."""

from __future__ import annotations

import optuna
import pytest
from optuna_dashboard import get_note

from sweeper.analysis.intervals import LogEstimate
from sweeper.records import (
    EndedBy,
    Failure,
    FailureClass,
    Interval,
    Load,
    LoadPoint,
    Quantiles,
    TrialRecord,
    TrialState,
)
from sweeper.search.candidates import distributions, parameters
from sweeper.space import Candidate
from sweeper.speculation import NO_SPECULATION, SpeculationConfig
from sweeper.storage.stored_trial import Speedups
from sweeper.study.ending import end_trial
from sweeper.study.trial_notes import report_steps, study_note, trial_note, write_note

ASKED, RUN = SpeculationConfig("EAGLE3", "a", 3, 1, 16), SpeculationConfig("EAGLE3", "a", 3, 1, 4)
LOADS = (Load(1), Load(4), Load(16))


def point(load: Load) -> LoadPoint:
    one, times = Interval(1, 1, 1), Quantiles(1, 1, 1, 1)
    return LoadPoint(
        load=load,
        requests=8,
        output_tok_s=Interval(100, 90, 110),
        plain_tok_s=90,
        window_s=1,
        accept_length=one,
        histogram=(),
        step_time_s=0.01,
        ttft_s=times,
        tpot_s=times,
        e2e_s=times,
        ended_by=EndedBy.PRECISION,
        drift=one,
        unstable=False,
    )


MEASURED = TrialRecord(RUN, RUN, TrialState.COMPLETE, tuple(map(point, LOADS)))
SPEEDUPS: Speedups = {load: LogEstimate(2.0 - load.concurrency / 16, 0.01, 9) for load in LOADS}
FAILED = TrialRecord(
    ASKED,
    RUN,
    TrialState.FAILED,
    failure=Failure(FailureClass.CRASH, "the server *died*", ("one", "```", "\x1b[2Jtwo")),
    overrides=("topk 1: num_draft_tokens becomes num_steps + 1",),
)


def ended(record: TrialRecord, speedups: Speedups) -> optuna.Study:
    study = optuna.create_study(direction="maximize")
    chains = [SpeculationConfig("EAGLE3", "a", steps, 1, steps + 1) for steps in (1, 3)]
    study.enqueue_trial(parameters(RUN))
    trial = study.ask(distributions([Candidate(chain, chain, ()) for chain in chains]))
    end_trial(study, trial, record, speedups, LOADS[:1])
    return study


def note_of(study: optuna.Study) -> str:
    trial = optuna.Trial(study, study.trials[0]._trial_id)
    return get_note(trial)


def test_a_failed_trials_note_says_why_what_next_and_shows_the_logs_end() -> None:
    note = note_of(ended(FAILED, {}))
    assert note.startswith(r"**CRASH**: the server \*died\*")
    assert "Next: see the log tail" in note
    assert "The end of logs/trial-0000.log:\n\n    one\n    ```\n" in note
    assert "Requested as 3/1/16; the server runs 3/1/4." in note
    assert "\x1b" not in note


def test_a_trial_whose_numbers_say_it_all_has_no_note() -> None:
    assert trial_note(0, MEASURED) == ""


def test_a_long_note_comes_back_whole_and_may_be_written_twice() -> None:
    study = optuna.create_study()
    text = "word " * 2000
    for _ in range(2):
        write_note(study, text)
    assert get_note(study) == text


def test_intermediate_values_are_the_speedup_curve() -> None:
    found = ended(MEASURED, SPEEDUPS).trials[0]
    assert found.intermediate_values == pytest.approx({1: 1.9375, 4: 1.75, 16: 1.0})
    assert found.value == pytest.approx(1.9375)


def test_loads_that_share_a_concurrency_are_numbered() -> None:
    short, long = Load(4, bucket="16-63"), Load(4, bucket="64-255")
    assert report_steps([short, long]) == {short: 0, long: 1}
    assert report_steps([Load(1), Load(rate=2.0)]) == {Load(1): 0, Load(rate=2.0): 1}


def test_the_studys_note_says_what_its_values_are() -> None:
    baseline = TrialRecord(
        NO_SPECULATION, NO_SPECULATION, TrialState.COMPLETE, MEASURED.load_points, server_version="0.5.23"
    )
    note = study_note(["c=1"], baseline)
    assert "speedups over the server without speculation at c=1" in note
    assert "* c=16: 100.0 tok/s (step 16)" in note


def test_optunas_own_plots_and_importances_work() -> None:
    study = optuna.create_study(direction="maximize")
    chains = [SpeculationConfig("EAGLE3", "a", steps, 1, steps + 1) for steps in (1, 2, 3, 5)]
    space = distributions([Candidate(chain, chain, ()) for chain in chains])
    for chain in chains:
        study.enqueue_trial(parameters(chain))
        speedups = {load: LogEstimate(1 + chain.num_steps / 10, 0.01, 9) for load in LOADS}
        end_trial(study, study.ask(space), MEASURED, speedups, LOADS[:1])
    plots = optuna.visualization
    for plot in (
        plots.plot_optimization_history,
        plots.plot_intermediate_values,
        plots.plot_parallel_coordinate,
        plots.plot_slice,
        plots.plot_param_importances,
    ):
        assert plot(study).data, plot.__name__
    assert "num_steps" in optuna.importance.get_param_importances(study)
