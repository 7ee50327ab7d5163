"""From a study and its trials to the cases of a diagnosis; predictions beside the candidates of a check."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sweeper.check import check_study
from sweeper.cli import app
from sweeper.config import StudyConfig
from sweeper.drafts.acceptance_map import AcceptanceMap, MapFacts
from sweeper.drafts.diagnosis import Kind, Verdict, diagnose
from sweeper.drafts.fingerprint import checkpoint_fingerprint
from sweeper.drafts.predictions import with_predictions
from sweeper.drafts.preflight.findings import DraftReport, Finding, Level
from sweeper.drafts.probe_report import ProbeReport, WiringRow
from sweeper.drafts.run_cases import cases_of, probe_reports_json, read_probes
from sweeper.errors import StudyFileError, SweeperError
from sweeper.records import EndedBy, Interval, Load, LoadPoint, Quantiles, TrialRecord, TrialState
from sweeper.speculation import SpeculationConfig
from sweeper.study_file.reading import load_study_file
from tests.conftest import WriteStudy

TIMES = Quantiles(0.1, 0.1, 0.1, 0.1)


def point(load: Load, accept_length: float, histogram: tuple[int, ...]) -> LoadPoint:
    one = Interval(1, 1, 1)
    length = Interval(accept_length, accept_length, accept_length)
    return LoadPoint(
        load, 8, one, 1, 1, length, histogram, 0.01, TIMES, TIMES, TIMES, EndedBy.PRECISION, one, False
    )


def record(
    draft: str, steps: int, topk: int, points: list[LoadPoint], asked: int | None = None
) -> TrialRecord:
    n = steps + 1 if topk == 1 else 8
    effective = SpeculationConfig("EAGLE3", draft, steps, topk, n)
    requested = SpeculationConfig("EAGLE3", draft, steps, topk, asked or n)
    return TrialRecord(requested, effective, TrialState.COMPLETE, tuple(points))


def report(draft: str, trained_on: str | None = None) -> ProbeReport:
    def row(wiring: str, value: float) -> WiringRow:
        return WiringRow(
            wiring=wiring,
            accept_length=Interval(value, value, value),
            expected_accept_length=value,
            conditional=[0.5, 0.5],
            marginal=[0.5, 0.25],
            on_true_text=[0.5, 0.4],
        )

    rows = [row("[2, 6, 9]", 1.3), *([row(trained_on, 2.8)] if trained_on else [])]
    return ProbeReport(
        draft=draft, target="t", source="s", texts=8, positions=80, depth=5, rows=rows, trained_on=trained_on,
        verdict="v", remedy="Set the ids." if trained_on else None,
    )  # fmt: skip


def test_training_accuracies_come_from_the_study_file(write_study: WriteStudy) -> None:
    study = load_study_file(
        write_study(
            space={
                "drafts": {
                    "a": {
                        "path": "draft_a",
                        "training": {"conditional_accuracy": [0.747, 0.67], "step": 2000},
                    },
                    "b": {"path": "draft_b", "training": {"marginal_accuracy": [0.6, 0.3]}},
                }
            }
        )
    )
    a, b = cases_of(study, [], {})
    assert a.trained is not None
    assert a.trained.conditional == (0.747, 0.67)
    assert b.trained is not None
    assert (b.trained.conditional, b.trained.claimed) == ((0.6, 0.5), Kind.MARGINAL)
    assert a.served is None


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"marginal_accuracy": [0.5, 0.6]}, "never rise"),
        ({"conditional_accuracy": [0.5], "marginal_accuracy": [0.5]}, "not both"),
        ({"conditional_accuracy": [74.7]}, "less than or equal to 1"),
        ({"conditional_accuracy": []}, "at least 1"),
    ],
)
def test_impossible_accuracies_are_errors_with_their_place(
    write_study: WriteStudy, training: dict[str, object], said: str
) -> None:
    with pytest.raises(StudyFileError, match=said) as raised:
        load_study_file(write_study(space={"drafts": {"a": {"path": "draft_a", "training": training}}}))
    assert "space.drafts.a.training" in str(raised.value)


def test_a_chain_of_five_tells_most_and_buckets_are_kept(study: StudyConfig) -> None:
    chain = record(
        "a", 5, 1, [point(Load(1), 1.5, (60, 20, 10)), point(Load(4), 1.6, (600, 300, 90))], asked=16
    )
    others = [record("a", 15, 1, [point(Load(1), 1.4, (9,))]), record("a", 5, 4, [point(Load(1), 2.0, (9,))])]
    lengths = [
        point(Load(1, bucket="1024-4095"), 1.5, (1,)),
        point(Load(1, bucket="1-1023"), 2.4, (5, 5)),
    ]
    a, b = cases_of(study, [*others, chain, record("b", 3, 1, lengths)], {"b": report("b", "[embed, 2, 6]")})
    assert a.served is not None
    assert a.served.effective == chain.effective
    assert (a.served.load, a.served.histogram) == ("c=4", (600, 300, 90))
    assert diagnose(a).causes[0].verdict == Verdict.CONFIG_OVERRIDE
    assert b.served is not None
    assert b.served.by_length == (("1-1023", 2.4), ("1024-4095", 1.5))
    assert b.served.accept_length == 2.4
    assert diagnose(b).verdict == Verdict.WIRING
    assert diagnose(b).causes[0].next_step == "Set the ids."


def test_silent_findings_of_the_preflight_are_evidence_and_warnings_are_not(study: StudyConfig) -> None:
    silent = Finding(
        Level.SILENT, "d2t", "d2t holds target ids", "model.safetensors: d2t", "subtract the draft's ids"
    )
    warning = Finding(Level.WARNING, "dtype", "another dtype", "config.json", "nothing")
    preflight = [DraftReport("a", "EAGLE3", "draft_a", "EAGLE3", findings=(silent, warning))]
    dead = record("a", 5, 1, [point(Load(1), 1.0, (90,))])
    a, b = cases_of(study, [dead], {}, preflight)
    assert a.findings == ("d2t holds target ids (model.safetensors: d2t)",)
    assert b.findings == ()
    assert diagnose(a).verdict == Verdict.WIRING


def test_probe_reports_are_read_back_and_anything_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "probe.json"
    path.write_bytes(probe_reports_json.dump_json([report("a")]))
    assert read_probes(path) == {"a": report("a")}
    path.write_text("{}")
    with pytest.raises(SweeperError, match="sweeper probe --json"):
        read_probes(path)
    with pytest.raises(SweeperError, match="cannot be read"):
        read_probes(tmp_path / "none.json")


def small_map(study: StudyConfig, tmp_path: Path) -> Path:
    """A chain of up to 3 steps of draft a, of which the first two are always right."""
    ranks = np.zeros((20, 3, 3), np.int16)
    for steps in range(3):
        ranks[:, steps, : min(2, steps + 1)] = range(1, 1 + min(2, steps + 1))
    drafts = {"a": checkpoint_fingerprint(Path(study.space.drafts["a"].path))}
    target = checkpoint_fingerprint(Path(study.engine.model))
    facts = MapFacts(study.engine.model, target, drafts, study.workload.prompts, "w", 2, 22, 11, {1: 3})
    AcceptanceMap(facts, np.array([10, 10]), {("a", 1): ranks}).save(tmp_path / "a.map")
    return tmp_path / "a.map"


def test_a_check_shows_what_the_map_predicts(study: StudyConfig, tmp_path: Path) -> None:
    path = small_map(study, tmp_path)
    found = with_predictions(check_study(study), study, path)
    predicted = {str(c.effective): c.predicted_accept_length for c in found.candidates}
    three = predicted["EAGLE3 a 3/1/4"]
    assert three is not None
    assert three.value == 2.5  # 3 tokens a round, the last one cut: 10 tokens in 4 rounds
    assert predicted["EAGLE3 b 3/1/4"] is None
    assert any("says nothing of 2 of 4 configs" in warning for warning in found.warnings)


def test_a_map_of_something_else_is_told(study: StudyConfig, tmp_path: Path) -> None:
    path = small_map(study, tmp_path)
    (Path(study.space.drafts["a"].path) / "config.json").write_text('{"another": 1}')
    other = study.model_copy(
        update={"workload": study.workload.model_copy(update={"temperature": 0.7, "prompts": "other.jsonl"})}
    )
    said = " ".join(with_predictions(check_study(study), other, path).warnings)
    for word in ("another checkpoint of draft 'a'", "other prompts", "greedy"):
        assert word in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["probe"], "--target and --draft and --workload must be given"),
        (["map", "--target", "t"], "--draft and --workload"),
        (["diagnose", "nowhere"], "no run 'nowhere'"),
        (["probe", "--target", "/none", "--draft", "/none/d", "--workload", "testbed"], "/none"),
    ],
)
def test_bad_input_is_one_error_and_exit_code_2(words: list[str], said: str) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert said in done.output
    assert "Traceback" not in done.output


def test_help_teaches() -> None:
    for command in ("probe", "map", "diagnose"):
        done = CliRunner().invoke(app, [command, "--help"])
        assert done.exit_code == 0
        assert "Examples" in done.output
