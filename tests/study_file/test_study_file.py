"""Wrong study files: one clear error each, with file, line and YAML path."""

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeper.errors import StudyFileError, SweeperError
from sweeper.printable import first_unprintable
from sweeper.records import Load
from sweeper.study_file.reading import load_study_file
from sweeper.study_file.variables import expand
from tests.conftest import WriteStudy

QUICK_S = 2.0


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
        (b"\xff\xfe\x00", "odd.yaml:1: not UTF-8 text (invalid start byte at byte 0; it begins like UTF-16)"),
        ("study: ü\n".encode("utf-16"), "it begins like UTF-16"),
        (b"study: x\n# caf\xe9\n", "odd.yaml:2: not UTF-8"),
        (b"study: x\nengine: \x1b[31m\n", "odd.yaml:2: no valid YAML: control character \\x1b"),
        (b"study: a\0b\n", "odd.yaml:1: no valid YAML: control character \\x00"),
        (b"# " + b"x" * 10_000_000, "larger than 250,000 bytes: this is no study file"),
        (b"- " * 120_000, "odd.yaml:1: nested more than 30 levels deep"),
        (b"- x\n" * 60_000, "more than 10,000 values"),
        (b"- just\n- a list\n", "a study file is a mapping"),
        (
            b"study: !!python/object/apply:os.system ['true']\n",
            "odd.yaml:1: study: the tag !!python/object/apply:os.system",
        ),
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
    merges = [
        "a0: &a0 {x: 1}",
        *(f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 9)}]}}" for i in range(1, 9)),
    ]
    for lines in (levels, merges):
        path = tmp_path / "bomb.yaml"
        path.write_text("\n".join(lines))
        began = time.monotonic()
        assert "aliases count each time" in complaint(path)
        assert time.monotonic() - began < QUICK_S


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(SweeperError, match="cannot be read: No such file"):
        load_study_file(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "study: 2024-99-99\n",
        "study: !!float abc\n",
        "study: !!bool maybe\n",
        "study: !!int\n",
        "? [a, b]\n: c\n",
        "a: &a [*a]\n",
        "a: &a {b: *a}\n",
        "a: " + "[" * 3000 + "\n",
        "study: 2024-01-01\n",
        "study: !!binary aGVsbG8=\n",
        "study: !!set {a}\n",
        "on: x\n",
        "study: a\n---\nstudy: b\n",
        "study: *nowhere\n",
        'study: "\\ud800"\n',
        f"study: {'9' * 5000}\n",
        f"study: 1{':1' * 5000}\n",
        f"? {'k' * 5000}\n: 1\n",
        "? !!python/name:os.system x\n: 1\n",
        "<<: 3\n",
    ],
    ids=[
        "no date",
        "no float",
        "no truth value",
        "no integer",
        "a list as key",
        "a list in itself",
        "a mapping in itself",
        "nested too deeply",
        "a date",
        "bytes",
        "a set",
        "a truth value as key",
        "two documents",
        "an alias of nothing",
        "half a character",
        "an endless number",
        "an endless number of base 60",
        "an endless key",
        "a key with a tag",
        "a merge with a number",
    ],
)
def test_odd_yaml_is_an_error_with_a_line_not_a_crash(tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    began = time.monotonic()
    said = complaint(path)
    assert re.search(r"odd\.yaml:\d+: ", said)
    assert len(said) < 500
    assert time.monotonic() - began < QUICK_S


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


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    pipe, loop = tmp_path / "pipe", tmp_path / "loop"
    os.mkfifo(pipe)
    loop.symlink_to(loop)
    began = time.monotonic()
    assert "no regular file but a pipe" in complaint(pipe)
    assert "no regular file" in complaint(Path("/dev/zero"))
    assert "Is a directory" in complaint(tmp_path)
    assert "cannot be read: Too many levels" in complaint(loop)
    assert time.monotonic() - began < QUICK_S


def test_a_link_a_mark_and_other_line_ends_are_harmless(write_study: WriteStudy, tmp_path: Path) -> None:
    path = write_study()
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    assert load_study_file(link) == load_study_file(path)


CONTROL = ["\n", "\x1b", "\x00", "\u2028", "\x85", "\u202e"]


@pytest.mark.parametrize("character", CONTROL, ids=[ascii(c) for c in CONTROL])
@pytest.mark.parametrize(
    "change",
    [
        {"study": "a{}b"},
        {"engine": {"model": "a{}b"}},
        {"engine": {"extra_args": {"served-model-name": "a{}b"}}},
        {"engine": {"extra_args": {"x": ["a{}b"]}}},
        {"engine": {"env": {"X": "a{}b"}}},
        {"space": {"drafts": {"a": {"path": "a{}b"}}}},
        {"workload": {"prompts": "a{}b"}},
        {"workload": {"prompt_column": "a{}b"}},
        {"runs_dir": "a{}b"},
        {"storage": "sqlite:///a{}b"},
    ],
    ids=str,
)
def test_no_value_holds_control_characters(
    write_study: WriteStudy, change: dict[str, Any], character: str
) -> None:
    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [filled(item) for item in value]
        return value.replace("{}", character)

    path = write_study(**filled(change))
    said = complaint(path)
    assert "is no character of a name, path, flag or variable" in said
    assert re.search(r"study\.yaml:\d+: \w", said)
    assert said.isprintable()


def test_control_characters_come_from_variables_too(
    write_study: WriteStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHERE", "a\n# b")
    assert "runs_dir: \\n is no character" in complaint(write_study(runs_dir="${WHERE}"))


def test_texts_for_the_model_may_have_lines(write_study: WriteStudy) -> None:
    study = load_study_file(write_study(workload={"chat_template_kwargs": {"system": "one\n\ttwo"}}))
    assert study.workload.chat_template_kwargs["system"] == "one\n\ttwo"


@pytest.mark.parametrize("name", ["../x", "a/b", "a\nb", "a#b", "[bold]", "x" * 65, "none", "-a"])
def test_draft_names_are_plain(write_study: WriteStudy, name: str) -> None:
    drafts = {name: {"path": "draft_a"}}
    assert "space" in complaint(write_study(space={"drafts": drafts}))


@pytest.mark.parametrize("hub_id", ["--host/x", "-a/b", "a/../b", "a/-b", "ä/b", "a/b/c"])
def test_hub_ids_cannot_be_flags_or_paths(write_study: WriteStudy, hub_id: str) -> None:
    assert "engine.model: no such directory" in complaint(write_study(engine={"model": hub_id}))


@pytest.mark.parametrize(
    ("extra_args", "expected"),
    [
        ({"x": "--host"}, "the value '--host' would be read as a flag of its own"),
        ({"x": ["a", "--host", "0.0.0.0"]}, "would be read as a flag"),
        ({"x": "-h"}, "would be read as a flag"),
        ({"host=0.0.0.0": True}, "is no name of a flag"),
        ({"": 1}, "is no name of a flag"),
        ({"---host": "0.0.0.0"}, "is no name of a flag"),
        ({"HOST ": 1}, "is no name of a flag"),
        ({"api_key": "x"}, "is set by the sweep itself"),
        ({"dist-init-addr": "x"}, "is set by the sweep itself"),
        ({"admin_api_key": "x"}, "is not allowed"),
        ({"sidecar": "os"}, "is not allowed"),
        ({"delete-ckpt-after-loading": True}, "is not allowed"),
        ({"dtype": "auto", "--dtype": "half"}, "engine.extra_args.dtype: the same flag as --dtype"),
    ],
)
def test_flags_that_would_undo_safety(
    write_study: WriteStudy, extra_args: dict[str, Any], expected: str
) -> None:
    assert expected in complaint(write_study(engine={"extra_args": extra_args}))


def test_negative_numbers_are_values(write_study: WriteStudy) -> None:
    given = {"chunked-prefill-size": -1, "x": "-1.5e3", "y": ["-2", -3]}
    assert load_study_file(write_study(engine={"extra_args": given})).engine.extra_args == given


def test_numbers_have_bounds(write_study: WriteStudy) -> None:
    assert "finite" in complaint(write_study(measurement={"max_seconds": float("inf")}))
    assert "search.seed" in complaint(write_study(search={"seed": 2**32}))
    sizes = {"min": 1, "max": 1000}
    grid = {"algorithm": "EAGLE3", "num_steps": sizes, "topk": sizes, "num_draft_tokens": sizes}
    assert "2,000,000,000 combinations" in complaint(write_study(space={"grids": [grid]}))
    workload = {
        "concurrency": list(range(1, 101)),
        "input_lengths": [[2 * i + 1, 2 * i + 2] for i in range(50)],
    }
    assert "5,000 loads" in complaint(write_study(workload=workload))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            {"engine": {"env": {"HF_TOKEN": "abcdefgh"}}},
            "engine.env.HF_TOKEN: the value of HF_TOKEN stands here in clear",
        ),
        ({"engine": {"env": {"db_password": "x y"}}}, "write ${db_password} and set that variable"),
        ({"engine": {"env": {"X_KEY": "${X_KEY:-abcdefgh}"}}}, "stands here in clear"),
        ({"engine": {"env": {"HTTPS_PROXY": "http://me:pass@proxy:3128"}}}, "the password in the URL"),
        ({"engine": {"env": {"X": "hf_" + "a" * 34}}}, "what looks like an access token"),
        (
            {"storage": "postgresql://sweeper:pass@db/x"},
            "storage: the password in the URL stands here in clear",
        ),
        ({"storage": "postgresql://sweeper:${PW:-pass}@db/x"}, "in clear"),
        ({"storage": "postgresql://db/x?user=a&password=b"}, "password in the URL"),
        ({"engine": {"extra_args": {"x": '{"id": "AKIA' + "A" * 16 + '"}'}}}, "only be given in engine.env"),
        ({"engine": {"model": "/models/${HF_TOKEN}"}}, "HF_TOKEN looks like a secret"),
        (
            {"workload": {"prompts": "${AWS_SECRET_ACCESS_KEY:-x}"}},
            "default of a secret variable stands here in clear",
        ),
    ],
)
def test_secrets_do_not_stand_in_study_files(
    write_study: WriteStudy, change: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "value-of-the-token")
    said = complaint(write_study(**change))
    assert expected in said
    assert "value-of-the-token" not in said


def test_what_only_sounds_secret_is_taken(write_study: WriteStudy) -> None:
    env = {
        "TOKENIZERS_PARALLELISM": "false",
        "MAX_TOKEN": "1024",
        "GOOGLE_APPLICATION_CREDENTIALS": "/etc/google.json",
        "HF_TOKEN_PATH": "/run/secrets/hf",
        "SGLANG_SIMULATE_ACC_TOKEN_MODE": "real-draft-token",
        "HF_TOKEN": "${HF_TOKEN}",
        "HTTPS_PROXY": "http://me:${PROXY_PASSWORD}@proxy:3128",
    }
    study = load_study_file(write_study(engine={"env": env}, storage="postgresql://me:${PGPASSWORD}@db/x"))
    assert env.items() <= study.engine.env.items()


def test_the_study_file_of_a_run_reads_no_environment(
    write_study: WriteStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come from anybody; it was expanded when it was written."""
    monkeypatch.setenv("HF_TOKEN", "value-of-the-token")
    path = write_study(engine={"model": "/x/${HF_TOKEN}"}, runs_dir="${HOME}")
    study = load_study_file(path, files_must_exist=False)
    assert study.engine.model == "/x/${HF_TOKEN}"
    assert study.runs_dir == "${HOME}"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10) | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)
PLACES = [
    (),
    ("study",),
    ("engine",),
    ("engine", "extra_args"),
    ("engine", "env"),
    ("engine", "tensor_parallel"),
    ("space", "drafts"),
    ("space", "grids"),
    ("workload", "concurrency"),
    ("workload", "chat_template_kwargs"),
    ("measurement",),
    ("search", "objective_load"),
    ("resources",),
    ("storage",),
]
EXAMPLES = settings(
    max_examples=150, deadline=2000, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def loads_or_complains(path: Path) -> None:
    """One clear error, or a study."""
    try:
        load_study_file(path)
        return
    except StudyFileError as error:
        said = str(error)
    assert said.startswith(f"{path}")
    assert first_unprintable(said) is None
    assert len(said) < 3000


@EXAMPLES
@given(
    content=st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace"))
)
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes(content)
    loads_or_complains(path)


@EXAMPLES
@given(text=st.text(alphabet="ab:- \n[]{}&*!|>'\"%#?,<$~1.", max_size=200))
def test_any_yaml_syntax(tmp_path: Path, text: str) -> None:
    path = tmp_path / "any.yaml"
    path.write_text(f"study: x\n{text}")
    loads_or_complains(path)


@EXAMPLES
@given(place=st.sampled_from(PLACES), value=VALUES)
def test_any_value_anywhere(
    write_study: WriteStudy, tmp_path: Path, place: tuple[str, ...], value: Any
) -> None:
    path = _valid(write_study, tmp_path)
    data = yaml.safe_load(path.read_text())
    section = data
    for key in place[:-1]:
        section = section.setdefault(key, {})
    if place:
        section[place[-1]] = value
    else:
        data = value
    changed = tmp_path / "changed.yaml"
    changed.write_text(yaml.safe_dump(data, allow_unicode=True), "utf-8")
    loads_or_complains(changed)


def _valid(write_study: WriteStudy, tmp_path: Path) -> Path:
    path = tmp_path / "study.yaml"
    return path if path.exists() else write_study()
