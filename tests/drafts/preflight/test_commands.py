"""Preflight where people meet it: ``sweeper check``, before ``sweeper run``, and in the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from reports.preflight import finding_line
from reports.schemas import SCHEMAS
from reports.study_report import build_report
from reports.terminal import preflight_lines
from sweeper.check import check_study
from sweeper.cli import app
from sweeper.drafts.preflight import Level, failing, preflight, serving_of
from sweeper.runs.directory import find_run, read_run
from sweeper.server.setup import EngineSetup
from sweeper.space import enumerate_space
from sweeper.study.skipping import pointless
from sweeper.study_file.reading import load_study_file
from tests.checkpoints import write_eagle3, write_target
from tests.command_line import sweeper
from tests.conftest import WriteStudy

OUT_OF_RANGE = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 30, 58]}}
UNSORTED = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [8, 1, 5]}}


def study_with(write_study: WriteStudy, tmp_path: Path, **b: Any) -> Path:
    """A study whose draft a is healthy and whose draft b has these changes in its config.json."""
    path = write_study(engine={"extra_args": {"dtype": "bfloat16"}})
    write_target(tmp_path / "target")
    write_eagle3(tmp_path / "draft_b", **b)
    return path


def test_check_tells_what_is_wrong_with_which_draft(write_study: WriteStudy, tmp_path: Path) -> None:
    path = study_with(write_study, tmp_path, **OUT_OF_RANGE)
    done = CliRunner().invoke(app, ["check", str(path), "--json"])
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    jsonschema.validate(data, SCHEMAS["check"].model_json_schema())
    healthy, broken = data["preflight"]
    assert (healthy["draft"], healthy["findings"]) == ("a", [])
    assert healthy["reads"].startswith("outputs of layers 1, 5, 8")
    assert [f["rule"] for f in broken["findings"]] == ["aux-range"]
    assert data["launches"] == 2  # of four: those of draft b are not launched
    shown = CliRunner().invoke(app, ["check", str(path)])
    assert "aux-range" in shown.stdout


def test_check_fails_where_nothing_is_left(write_study: WriteStudy, tmp_path: Path) -> None:
    path = study_with(write_study, tmp_path, **OUT_OF_RANGE)
    write_eagle3(tmp_path / "draft_a", draft_vocab_size=33)
    done = CliRunner().invoke(app, ["check", str(path)])
    assert done.exit_code == 2
    assert "preflight leaves nothing to launch" in done.output


@pytest.mark.parametrize(("changes", "code"), [({}, 0), (UNSORTED, 0), (OUT_OF_RANGE, 2)])
def test_check_of_one_draft_needs_no_study(changes: dict[str, Any], code: int, tmp_path: Path) -> None:
    target, draft = write_target(tmp_path / "target"), write_eagle3(tmp_path / "step2000", **changes)
    words = ["check", "--draft", str(draft), "--target", str(target), "--algorithm", "EAGLE3"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == code
    report = json.loads(done.stdout[: done.stdout.rindex("}") + 1])
    assert (report["draft"], bool(report["findings"])) == ("step2000", bool(changes))


@pytest.mark.parametrize(
    "words",
    [["check"], ["check", "--draft", "x"], ["check", "f.yaml", "--draft", "x"],
     ["check", "--draft", "x", "--target", "y", "--algorithm", "EAGLE4"]],
)  # fmt: skip
def test_check_says_what_it_needs(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "error:" in done.output


def test_a_run_of_broken_drafts_ends_before_anything_starts(write_study: WriteStudy, tmp_path: Path) -> None:
    path = study_with(write_study, tmp_path, **OUT_OF_RANGE)
    write_eagle3(tmp_path / "draft_a", **OUT_OF_RANGE)
    done = sweeper("run", str(path))
    assert done.returncode == 2
    assert done.stderr.count("error:") == 1
    assert "preflight finds errors in every draft" in done.stderr
    assert "--no-preflight" in done.stderr
    assert not (tmp_path / "runs" / "small" / "study.db").exists()


def test_errors_leave_configs_out_and_silent_faults_do_not(write_study: WriteStudy, tmp_path: Path) -> None:
    config = load_study_file(study_with(write_study, tmp_path, **OUT_OF_RANGE))
    candidates = enumerate_space(config.space).candidates
    configs = [c.effective for c in candidates]
    reports = preflight(config, EngineSetup(), candidates)
    skipped = pointless(configs, [], reports)
    assert {c.draft for c in skipped} == {"b"}
    assert all(why.startswith("preflight aux-range: [30, 58] are never captured") for why in skipped.values())
    write_eagle3(tmp_path / "draft_b", **UNSORTED)
    mended = preflight(config, EngineSetup(), candidates)
    assert failing(mended, configs) == {}
    assert [f.level for r in mended for f in r.findings] == [Level.SILENT]
    assert "aux-order" in finding_line(mended[1], mended[1].findings[0])


def test_serving_is_read_from_the_study(write_study: WriteStudy) -> None:
    config = load_study_file(
        write_study(
            engine={
                "extra_args": {"context-length": 256, "quantization": "fp8", "dtype": "half"},
                "env": {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"},
            },
            workload={"input_lengths": [[1, 64]]},
        )
    )
    serving = serving_of(config, EngineSetup("0.5.12"))
    assert (serving.context_length, serving.quantization, serving.dtype) == (256, "fp8", "half")
    assert serving.longer_context
    assert serving.longest_request == 64 + config.workload.max_new_tokens


def test_an_algorithm_without_a_draft_has_nothing_to_check(write_study: WriteStudy) -> None:
    grid = {"algorithm": "NGRAM", "num_draft_tokens": 8}
    assert check_study(load_study_file(write_study(space={"grids": [grid]}))).preflight == []


def test_a_sweep_leaves_a_broken_draft_out_and_keeps_why(write_study: WriteStudy, tmp_path: Path) -> None:
    path = study_with(write_study, tmp_path, **OUT_OF_RANGE)
    write_eagle3(tmp_path / "draft_a", rope_theta=10000.0)
    done = sweeper("run", str(path), "--max-trials", "1")
    assert done.returncode == 0, done.stderr
    assert "warning rope-theta EAGLE3 a" in done.stdout
    report = build_report(*read_run(find_run(str(tmp_path / "runs" / "small"))))
    assert [trial.config.draft for trial in report.trials] == ["a"]
    assert {name.split()[1] for name in report.skipped} == {"b"}
    assert [[f.rule for f in draft.findings] for draft in report.preflight] == [["rope-theta"], ["aux-range"]]
    assert "aux-range" in "".join(preflight_lines(report))
