"""Wrong study files: one clear error each, with file, line and YAML path."""

from pathlib import Path

import pytest

from sweeper.errors import StudyFileError, SweeperError
from sweeper.records import Load
from sweeper.study_file import expand, load_study_file
from tests.conftest import WriteStudy


def complaint(path: Path) -> str:
    with pytest.raises(StudyFileError) as caught:
        load_study_file(path)
    return str(caught.value)


def line_of(path: Path, text: str) -> int:
    return next(i for i, line in enumerate(path.read_text().splitlines(), 1) if text in line)


def test_paths_are_relative_to_the_study_file(write_study: WriteStudy, tmp_path: Path) -> None:
    study = load_study_file(write_study())
    assert study.engine.model == str(tmp_path / "target")
    assert study.space.drafts["a"].path == str(tmp_path / "draft_a")
    assert study.workload.prompts == str(tmp_path / "prompts.jsonl")


def test_hub_ids_stay_as_they_are(write_study: WriteStudy) -> None:
    study = load_study_file(write_study(engine={"model": "meta-llama/Llama-3.1-8B-Instruct"}))
    assert study.engine.model == "meta-llama/Llama-3.1-8B-Instruct"


def test_ranges_include_their_end(write_study: WriteStudy) -> None:
    grid = {"algorithm": "EAGLE3", "drafts": "a", "num_steps": {"min": 1, "max": 7, "step": 2}}
    study = load_study_file(write_study(space={"grids": [grid]}))
    assert study.space.grids[0].num_steps == [1, 3, 5, 7]


def test_unknown_key_names_line_path_and_the_nearest_key(write_study: WriteStudy) -> None:
    path = write_study(workload={"concurency": [1]})
    said = complaint(path)
    assert f"{path}:{line_of(path, 'concurency')}: workload.concurency: unknown key" in said
    assert "did you mean concurrency?" in said


def test_wrong_type(write_study: WriteStudy) -> None:
    path = write_study(space={"grids": [{"algorithm": "EAGLE3", "num_steps": ["three"]}]})
    assert f"{path}:{line_of(path, 'three')}: space.grids[0].num_steps[0]: " in complaint(path)


def test_bad_range(write_study: WriteStudy) -> None:
    path = write_study(space={"grids": [{"algorithm": "EAGLE3", "num_steps": {"min": 5, "max": 1}}]})
    said = complaint(path)
    assert "space.grids[0].num_steps" in said
    assert "empty range: min 5, max 1" in said


def test_missing_draft_path(write_study: WriteStudy) -> None:
    path = write_study(space={"drafts": {"a": {"path": "./nowhere"}}})
    said = complaint(path)
    assert f"{path}:{line_of(path, './nowhere')}: space.drafts.a.path: no such directory" in said


def test_draft_that_is_not_listed(write_study: WriteStudy) -> None:
    path = write_study(space={"grids": [{"algorithm": "EAGLE3", "drafts": ["c"], "num_steps": 1}]})
    assert "space.grids[0].drafts: no draft 'c' in space.drafts (there: a, b)" in complaint(path)


def test_empty_space(write_study: WriteStudy) -> None:
    assert "space.grids" in complaint(write_study(space={"grids": []}))


def test_unreadable_yaml_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("study: x\nengine: [1, 2\nspace: {}\n")
    assert f"{path}:3: no valid YAML" in complaint(path)


def test_tree_without_draft_tokens(write_study: WriteStudy) -> None:
    path = write_study(space={"grids": [{"algorithm": "EAGLE3", "num_steps": 3, "topk": 4}]})
    assert "SGLang needs all three numbers" in complaint(path)


def test_repeated_key(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("study: x\nstudy: y\n")
    assert f"{path}:2: study: this key stands twice" in complaint(path)


def test_unset_variable(write_study: WriteStudy) -> None:
    said = complaint(write_study(engine={"model": "${NO_SUCH_VARIABLE}/target"}))
    assert "engine.model: environment variable NO_SUCH_VARIABLE is not set" in said


def test_variables_and_defaults_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHERE", "/models")
    assert expand("${WHERE}/a ${MISSING:-b}") == "/models/a b"


def test_secrets_in_the_server_environment_are_not_expanded(
    write_study: WriteStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    study = load_study_file(write_study(engine={"env": {"HF_TOKEN": "${TOKEN}"}}))
    assert study.engine.env["HF_TOKEN"] == "${TOKEN}"


@pytest.mark.parametrize("flag", ["port", "--speculative-num-steps", "max_running_requests"])
def test_flags_that_the_sweep_owns(write_study: WriteStudy, flag: str) -> None:
    assert "is set by the sweep itself" in complaint(write_study(engine={"extra_args": {flag: 1}}))


@pytest.mark.parametrize("name", ["../escape", "a/b", "", "x" * 65, "a b"])
def test_study_names_cannot_leave_the_runs_folder(write_study: WriteStudy, name: str) -> None:
    assert "study" in complaint(write_study(study=name))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"- just\n- a list\n", "a study file is a mapping"),
        (b"study: !!python/object/apply:os.system ['true']\n", "no valid YAML"),
        (b"", "a study file is a mapping"),
    ],
)
def test_files_that_are_no_study(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_bytes(content)
    assert expected in complaint(path)


def test_alias_bombs_end_quickly(tmp_path: Path) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    path = tmp_path / "bomb.yaml"
    path.write_text("\n".join(levels))
    assert "aliases count each time" in complaint(path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SweeperError, match="cannot be read: No such file"):
        load_study_file(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "study: 2024-99-99\n",
        "study: !!float abc\n",
        "? [a, b]\n: c\n",
        "a: &a [*a]\n",
        "a: " + "[" * 3000 + "\n",
    ],
    ids=["no date", "no float", "a list as key", "an alias of itself", "nested too deeply"],
)
def test_odd_yaml_is_an_error_not_a_crash(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    assert "odd.yaml" in complaint(path)


@pytest.mark.parametrize(
    "where", ["~no_such_user_/x", "x" * 300, "a\0b"], ids=["unknown user", "too long", "NUL"]
)
def test_unusable_paths(write_study: WriteStudy, where: str) -> None:
    assert "engine.model" in complaint(write_study(engine={"model": where}))


def test_endless_ranges_are_refused(write_study: WriteStudy) -> None:
    grid = {"algorithm": "EAGLE3", "num_steps": {"min": 1, "max": 10**9}}
    assert "at most 1000 values" in complaint(write_study(space={"grids": [grid]}))


def test_a_latency_objective_is_a_request_rate(write_study: WriteStudy) -> None:
    workload = {"concurrency": [1, 4], "request_rates": [2.0]}
    by_rate = load_study_file(write_study(workload=workload, search={"objective_rate": 2.0}))
    assert [str(load) for load in by_rate.objective_loads] == ["2.0/s"]
    both = load_study_file(
        write_study(workload=workload, search={"objective_rate": 2.0, "objective_load": 4})
    )
    assert [str(load) for load in both.objective_loads] == ["c=4", "2.0/s"]
    with pytest.raises(StudyFileError, match="objective_rate 3 is not among workload.request_rates"):
        load_study_file(write_study(workload=workload, search={"objective_rate": 3.0}))


def test_input_lengths_multiply_the_loads(write_study: WriteStudy) -> None:
    study = load_study_file(write_study(workload={"input_lengths": [[1, 63], [64, 1023]]}))
    assert [str(load) for load in study.workload.loads] == [
        "c=1 in=1-63",
        "c=1 in=64-1023",
        "c=4 in=1-63",
        "c=4 in=64-1023",
    ]
    assert len(study.objective_loads) == 2
    assert all(Load.parse(str(load)) == load for load in study.workload.loads)
    with pytest.raises(StudyFileError, match="do not overlap"):
        load_study_file(write_study(workload={"input_lengths": [[1, 64], [64, 128]]}))
