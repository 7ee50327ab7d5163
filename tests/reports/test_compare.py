"""What two runs differ by: beyond noise or not, and what counts as a regression."""

from __future__ import annotations

import pytest

from reports.changes import Change
from reports.compare import Comparison, compare, launch_noise
from reports.study_report import CheckRow, StudyReport, TrialRow
from sweeper.cli.compare import share
from sweeper.errors import SweeperError
from sweeper.records import Interval
from sweeper.speculation import SpeculationConfig
from tests.reports.test_study_report import report, row

SOME = Interval(1.5, 1.48, 1.52)


def scaled(trial: TrialRow, rate: float = 1.0, length: float = 1.0) -> TrialRow:
    """The trial with tok/s, speedup and accept length times a factor; intervals of 1 %."""

    def near(value: float) -> Interval:
        return Interval(value, value / 1.01, value * 1.01)

    [load] = trial.loads
    changes = {
        "output_tok_s": near(150 * rate),
        "speedup": near(1.5 * rate),
        "accept_length": near(2.5 * length),
    }
    return trial.model_copy(update={"loads": [load.model_copy(update=changes)]})


def change(found: Comparison, measure: str) -> Change:
    [only] = [c for c in found.changes if c.measure == measure and c.config != "no speculation"]
    return only


def drifting(found: StudyReport, *drifts: float) -> StudyReport:
    checks = [
        CheckRow(when="end", server="s", drift=Interval(d, d, d), beyond_tolerance=False) for d in drifts
    ]
    return found.model_copy(update={"checks": checks})


def test_equal_runs_have_no_regression() -> None:
    found = compare(report(scaled(row(0, SOME))), report(scaled(row(0, SOME))))
    assert found.regressions() == []
    assert not any(c.beyond_noise for c in found.changes)
    assert found.differences == []


def test_a_tenth_less_is_a_regression_and_comes_first() -> None:
    found = compare(report(scaled(row(0, SOME))), report(scaled(row(0, SOME), rate=0.9)))
    assert found.changes[0].worse
    assert found.changes[0].ratio.value == pytest.approx(0.9)
    assert found.regressions(0.03) == [
        "EAGLE3 a 1/1/2 at c=1: output tok/s -10.0 %",
        "EAGLE3 a 1/1/2 at c=1: speedup -10.0 %",
    ]
    assert found.regressions(0.2) == []


def test_an_improvement_is_none() -> None:
    found = compare(report(scaled(row(0, SOME))), report(scaled(row(0, SOME), rate=1.2)))
    assert change(found, "speedup").beyond_noise
    assert found.regressions() == []


def test_a_change_within_the_intervals_is_none() -> None:
    found = compare(report(scaled(row(0, SOME))), report(scaled(row(0, SOME), rate=0.985)))
    assert not change(found, "speedup").beyond_noise


def test_launches_that_differ_widen_what_counts_as_noise() -> None:
    """Checks of the baseline that were 10 % off: two launches differ by that much for no reason."""
    before, after = report(scaled(row(0, SOME))), report(scaled(row(0, SOME), rate=0.9))
    assert change(compare(before, after), "output tok/s").beyond_noise
    noisy = compare(drifting(before, 1.1, 1 / 1.1), after)
    assert noisy.launch_noise == pytest.approx(0.0674, abs=1e-4)
    assert not change(noisy, "output tok/s").beyond_noise


def test_accept_lengths_do_not_depend_on_the_machines_moods() -> None:
    before = drifting(report(scaled(row(0, SOME))), 1.1)
    found = compare(before, report(scaled(row(0, SOME), length=0.9)))
    assert found.regressions() == ["EAGLE3 a 1/1/2 at c=1: accept length -10.0 %"]


def test_on_other_hardware_tokens_per_second_are_no_regression_but_speedups_are() -> None:
    after = report(scaled(row(0, SOME), rate=0.5)).model_copy(update={"hardware": "1x L"})
    found = compare(report(scaled(row(0, SOME))), after)
    assert found.differences == ["hardware: 1x H -> 1x L"]
    assert found.regressions() == ["EAGLE3 a 1/1/2 at c=1: speedup -50.0 %"]


def test_a_config_that_fails_now_is_a_regression_whatever_the_tolerance() -> None:
    failed = row(0, SOME).model_copy(
        update={"state": "FAILED", "loads": [], "failure_class": "OOM_STATIC", "failure": "no room"}
    )
    found = compare(report(scaled(row(0, SOME))), report(failed))
    assert found.regressions(0.5) == ["EAGLE3 a 1/1/2: OOM_STATIC: no room"]


def test_outputs_that_may_differ_now_are_a_regression() -> None:
    found = compare(report(row(0, SOME)), report(row(0, SOME, lossy="2 of 16 outputs differ")))
    assert found.regressions() == ["EAGLE3 a 1/1/2: LOSSY now: 2 of 16 outputs differ"]


def test_one_draft_each_stands_for_the_other_whatever_its_name() -> None:
    renamed = scaled(row(0, SOME)).model_copy(update={"config": SpeculationConfig("EAGLE3", "b", 1, 1, 2)})
    found = compare(report(scaled(row(0, SOME))), report(renamed))
    assert change(found, "speedup").config == "EAGLE3 b 1/1/2 (was EAGLE3 a 1/1/2)"


def test_configs_of_one_run_only_are_named() -> None:
    found = compare(report(row(0, SOME), row(1, SOME)), report(row(1, SOME), row(2, SOME)))
    assert (found.only_before, found.only_after) == (["EAGLE3 a 1/1/2"], ["EAGLE3 a 3/1/4"])


def test_other_prompts_do_not_compare_unless_a_person_says_so() -> None:
    other = report(row(0, SOME)).model_copy(update={"workload": "beef"})
    with pytest.raises(SweeperError, match="--any-workload"):
        compare(report(row(0, SOME)), other)
    assert compare(report(row(0, SOME)), other, any_workload=True).differences


def test_many_numbers_make_no_change_by_chance() -> None:
    """A number that alone would be a change at 95 % is none among a hundred (Holm)."""
    off = 1 - 0.02
    alone = compare(report(scaled(row(0, SOME))), report(scaled(row(0, SOME), rate=off, length=off)))
    assert change(alone, "accept length").beyond_noise
    many = [scaled(row(i, SOME)) for i in range(40)]
    after = [scaled(row(0, SOME), length=off), *many[1:]]
    among = compare(report(*many), report(*after))
    [same] = [c for c in among.changes if c.measure == "accept length" and c.config == "EAGLE3 a 1/1/2"]
    assert not same.beyond_noise


def test_launch_noise_is_that_of_one_launch() -> None:
    assert launch_noise(report(row(0, SOME))) == 0
    assert launch_noise(drifting(report(row(0, SOME)), 1.1)) == pytest.approx(0.0674, abs=1e-4)


@pytest.mark.parametrize(("text", "value"), [("3%", 0.03), ("3 %", 0.03), ("0.03", 0.03), ("0%", 0)])
def test_a_share_is_written_in_percent_or_as_a_number(text: str, value: float) -> None:
    assert share(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["3", "-1%", "100%", "x", ""])
def test_what_is_no_share_is_an_error(text: str) -> None:
    with pytest.raises(SweeperError, match="--fail-on-regression"):
        share(text)
