"""Who wins, and who must not."""

from reports.deployment.choice import Choice
from reports.deployment.server import deployment_of
from reports.deployment.sglang import sglang_yaml
from reports.study_report import BaselineRow, LoadRow, StudyReport, TrialRow, _winner
from reports.terminal import break_even_lines, confirmation_lines, quality_lines, verdict
from sweeper.breakeven import BreakEven
from sweeper.config import StudyConfig
from sweeper.records import EndedBy, Interval
from sweeper.speculation import SpeculationConfig


def row(number: int, speedup: Interval, lossy: str = "", confirmed: Interval | None = None) -> TrialRow:
    load = LoadRow(
        load="c=1",
        concurrency=1,
        output_tok_s=Interval(100 * speedup.value, 90, 110),
        speedup=speedup,
        confirmed=confirmed,
        accept_length=Interval(2.5, 2.4, 2.6),
        break_even_accept_length=2.0,
        step_time_ms=10,
        ttft_p50_ms=5,
        tpot_p50_ms=4,
        e2e_p90_ms=900,
        requests=16,
        ended_by=EndedBy.PRECISION,
        unstable=False,
    )
    return TrialRow(
        number=number,
        state="COMPLETE",
        config=SpeculationConfig("EAGLE3", "a", number + 1, 1, number + 2),
        objective=speedup,
        confirmed=confirmed,
        loads=[load],
        break_even={"": BreakEven("always")},
        outputs_equal=not lossy,
        lossy=[lossy] if lossy else [],
    )


def report(*trials: TrialRow, allow_lossy: bool = False) -> StudyReport:
    return StudyReport(
        study="s",
        model="m",
        engine_version="0.5.23",
        hardware="1x H",
        workload="f00d",
        objective_loads=["c=1"],
        max_new_tokens=64,
        temperature=0,
        baseline=[
            BaselineRow(
                load="c=1",
                concurrency=1,
                output_tok_s=Interval(100, 95, 105),
                step_time_ms=10,
                ttft_p50_ms=5,
                requests=16,
                ended_by=EndedBy.PRECISION,
                unstable=False,
            )
        ],
        trials=list(trials),
        winner=_winner(list(trials), 0.01, allow_lossy),
        created_at="2026-01-01T00:00:00+00:00",
    )


FAST, SOME = Interval(1.9, 1.8, 2.0), Interval(1.5, 1.4, 1.6)


def test_the_fastest_config_with_the_baselines_outputs_wins() -> None:
    found = report(row(0, FAST, lossy="3 of 16 outputs differ"), row(1, SOME))
    assert found.winner == 1
    assert "Deploy[/]" not in verdict(found)
    assert "Deploy EAGLE3 a 2/1/3" in verdict(found)


def test_a_lossy_config_wins_only_on_request_and_is_called_so() -> None:
    trials = (row(0, FAST, lossy="3 of 16 outputs differ"), row(1, SOME))
    found = report(*trials, allow_lossy=True)
    assert found.winner == 0
    assert "LOSSY" in verdict(found)
    assert any("LOSSY" in line and "3 of 16" in line for line in quality_lines(found))


def test_a_speedup_that_may_be_none_does_not_win() -> None:
    found = report(row(0, Interval(1.1, 0.95, 1.2)))
    assert found.winner is None
    assert "no config is clearly faster" in verdict(found)


def test_when_only_lossy_configs_are_faster_the_verdict_says_so() -> None:
    found = report(row(0, FAST, lossy="accept threshold 0.5"))
    assert found.winner is None
    assert "but for 1 that may change its outputs" in verdict(found)


def test_what_was_confirmed_counts_and_stands_beside_the_search() -> None:
    """The best of the search does worse when it is measured again; who was not measured again cannot win."""
    found = report(
        row(0, FAST, confirmed=Interval(1.2, 1.1, 1.3)), row(1, SOME, confirmed=SOME), row(2, FAST)
    )
    assert found.winner == 1
    lines = "\n".join(confirmation_lines(found))
    assert "in the search 1.90 [1.80-2.00], confirmed 1.20 [1.10-1.30]" in lines.replace("\\[", "[")


def test_nothing_measured_is_no_verdict() -> None:
    failed = TrialRow(
        number=0, state="FAILED", config=row(0, Interval(1, 1, 1)).config, failure_class="CRASH"
    )
    assert "No verdict" in verdict(report(failed))


def test_break_even_lines_say_how_many_pay() -> None:
    found = report(row(0, SOME), row(1, Interval(0.9, 0.8, 0.95)))
    assert any("concurrency 1: 1 of 2 configs pay" in line for line in break_even_lines(found))


def test_the_best_of_a_load_is_a_confirmed_config_if_there_is_one_and_never_a_lossy_one() -> None:
    found = report(row(0, FAST, lossy="3 of 16 outputs differ"), row(1, FAST), row(2, FAST, confirmed=SOME))
    [line] = [line for line in break_even_lines(found) if "concurrency 1:" in line]
    assert "best EAGLE3 a 3/1/4 1.50" in line


def test_the_export_says_what_it_was_measured_with(study: StudyConfig) -> None:
    found = report(row(0, SOME))
    choice = Choice(found.best, found.objective_loads)
    text = sglang_yaml(deployment_of(study, found, choice))
    assert "# Trial 0: EAGLE3 a 1/1/2." in text
    assert "c=1: 1.500 [1.400, 1.600]; 150.0 tok/s" in text
    assert "UNCONFIRMED" in text
    assert "Not measured above concurrency 1" in text
    assert "speculative-num-steps: 1" in text
    assert "random-seed" not in text
