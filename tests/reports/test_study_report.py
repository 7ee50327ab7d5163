"""Who wins, and who must not."""

from reports.exports import FORMATS
from reports.study_report import BaselineRow, LoadRow, StudyReport, TrialRow, _winner
from reports.terminal import break_even_lines, verdict
from sweeper.breakeven import BreakEven
from sweeper.config import StudyConfig
from sweeper.records import Interval
from sweeper.speculation import SpeculationConfig


def row(number: int, speedup: Interval, different: int = 0) -> TrialRow:
    load = LoadRow(
        concurrency=1,
        output_tok_s=Interval(100 * speedup.value, 90, 110),
        speedup=speedup,
        accept_length=2.5,
        break_even_accept_length=2.0,
        step_time_ms=10,
        ttft_p50_ms=5,
        tpot_p50_ms=4,
        e2e_p90_ms=900,
        requests=16,
    )
    return TrialRow(
        number=number,
        state="COMPLETE",
        config=SpeculationConfig("EAGLE3", "a", number + 1, 1, number + 2),
        objective=speedup,
        loads=[load],
        break_even=BreakEven("always"),
        outputs_equal=not different,
        outputs_different=different,
    )


def report(*trials: TrialRow) -> StudyReport:
    return StudyReport(
        study="s",
        model="m",
        engine_version="0.5.23",
        hardware="1x H",
        objective_loads=[1],
        max_new_tokens=64,
        temperature=0,
        baseline=[
            BaselineRow(concurrency=1, output_tok_s=Interval(100, 95, 105), step_time_ms=10, ttft_p50_ms=5)
        ],
        trials=list(trials),
        winner=_winner(list(trials)),
        created_at="2026-01-01T00:00:00+00:00",
    )


def test_the_fastest_config_with_the_baselines_outputs_wins() -> None:
    found = report(row(0, Interval(1.9, 1.8, 2.0), different=3), row(1, Interval(1.5, 1.4, 1.6)))
    assert found.winner == 1
    assert "Deploy[/]" not in verdict(found)
    assert "Deploy EAGLE3 a 2/1/3" in verdict(found)


def test_a_speedup_that_may_be_none_does_not_win() -> None:
    found = report(row(0, Interval(1.1, 0.95, 1.2)))
    assert found.winner is None
    assert "no config is clearly faster" in verdict(found)


def test_when_only_configs_with_other_outputs_are_faster_the_verdict_says_so() -> None:
    found = report(row(0, Interval(1.9, 1.8, 2.0), different=3))
    assert found.winner is None
    assert "all 1 faster configs give other outputs" in verdict(found)


def test_nothing_measured_is_no_verdict() -> None:
    failed = TrialRow(
        number=0, state="FAILED", config=row(0, Interval(1, 1, 1)).config, failure_class="CRASH"
    )
    assert "No verdict" in verdict(report(failed))


def test_break_even_lines_say_how_many_pay() -> None:
    found = report(row(0, Interval(1.5, 1.4, 1.6)), row(1, Interval(0.9, 0.8, 0.95)))
    assert any("concurrency 1: 1 of 2 configs pay" in line for line in break_even_lines(found))


def test_the_export_says_what_it_was_measured_with(study: StudyConfig) -> None:
    _, render = FORMATS["sglang"]
    found = report(row(0, Interval(1.5, 1.4, 1.6)))
    text = render(study, found, found.best)
    assert "# Trial 0: EAGLE3 a 1/1/2." in text
    assert "concurrency 1: 1.500 [1.400, 1.600], 150.0 tok/s" in text
    assert "max-running-requests is the highest concurrency measured (4)" in text
    assert "speculative-num-steps: 1" in text
    assert "random-seed" not in text
