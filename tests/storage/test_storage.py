"""Storages that are locked, full, down, in the wrong place or of another kind; files that are there whole or not."""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy.exc import OperationalError

from sweeper.config import StudyConfig
from sweeper.driver.driving import driving
from sweeper.errors import StorageLostError, StudyChangedError, SweeperError
from sweeper.runs.directory import RunDirectory
from sweeper.runs.whole_files import remove_half_written, write_whole
from sweeper.storage.attributes import LONGEST, packed, unpacked
from sweeper.storage.file_systems import Mount
from sweeper.storage.opening import open_storage, refuse_network_file_system, storage_url
from sweeper.storage.patience import Patience
from sweeper.storage.patient import patient
from sweeper.storage.stored_study import StoredStudy


@pytest.fixture
def said() -> list[str]:
    """What the person was told."""
    return []


def sqlite_study(path: Path, patience: Patience) -> optuna.Study:
    config = StudyConfig.model_construct(storage=None)
    return optuna.create_study(storage=open_storage(storage_url(config, path), patience), study_name="s")


def with_storage(study: StudyConfig, url: str) -> StudyConfig:
    return study.model_copy(update={"storage": url})


def test_a_locked_storage_is_waited_for_and_the_person_is_told(tmp_path: Path, said: list[str]) -> None:
    study = sqlite_study(tmp_path, Patience(30, said.append))
    other = sqlite3.connect(tmp_path / "study.db", check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    threading.Timer(6.0, other.rollback).start()  # longer than SQLite itself waits
    study.set_user_attr("kept", 1)
    assert study.user_attrs["kept"] == 1
    assert said[0].startswith("storage: database is locked; trying again, for ")
    assert said[-1].startswith("storage: works again after ")


def test_a_storage_that_stays_locked_ends_with_one_clear_error(tmp_path: Path, said: list[str]) -> None:
    study = sqlite_study(tmp_path, Patience(1, said.append))
    other = sqlite3.connect(tmp_path / "study.db")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StorageLostError, match="database is locked .* the same command continues the study"):
        study.set_user_attr("kept", 1)


def test_what_no_waiting_mends_is_not_waited_for(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "study.db").write_text("this is no database, but long enough to be taken for one\n" * 50)
    began = time.monotonic()
    with pytest.raises(SweeperError, match="storage: cannot be opened: file is not a database"):
        sqlite_study(tmp_path, Patience(60, said.append))
    assert time.monotonic() - began < 5


class Unreliable(optuna.storages.RDBStorage):
    """Carries everything out, and loses the answers to the operations named."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.lose: set[str] = set()

    def _after(self, name: str) -> None:
        if name in self.lose:
            self.lose.remove(name)
            raise OperationalError("commit", {}, Exception("server closed the connection unexpectedly"))

    def set_trial_state_values(self, trial_id: int, state: TrialState, values: object = None) -> bool:
        done = super().set_trial_state_values(trial_id, state, values)  # type: ignore[arg-type]
        self._after("set_trial_state_values")
        return done

    def set_trial_user_attr(self, trial_id: int, key: str, value: object) -> None:
        super().set_trial_user_attr(trial_id, key, value)
        self._after("set_trial_user_attr")


@pytest.fixture
def unreliable(tmp_path: Path) -> tuple[Unreliable, optuna.Study]:
    rdb = Unreliable(f"sqlite:///{tmp_path}/study.db")
    return rdb, optuna.create_study(storage=patient(rdb, Patience(20), None), direction="maximize")


def test_an_answer_that_was_lost_changes_nothing(unreliable: tuple[Unreliable, optuna.Study]) -> None:
    """The operation was carried out, and is again: a trial of the queue still runs once, a result is told once."""
    rdb, study = unreliable
    study.enqueue_trial({"x": 1})
    study.enqueue_trial({"x": 2})
    rdb.lose = {"set_trial_state_values"}
    trial = study.ask({"x": optuna.distributions.IntDistribution(0, 9)})
    assert (trial.number, trial.params) == (0, {"x": 1})
    rdb.lose = {"set_trial_user_attr"}
    trial.set_user_attr("a", 1)
    rdb.lose = {"set_trial_state_values"}
    study.tell(trial, 2.5)
    first, second = study.trials
    assert (first.state, first.value, first.user_attrs) == (TrialState.COMPLETE, 2.5, {"a": 1})
    assert second.state == TrialState.WAITING


NETWORK = [
    ("nfs4", "/mnt/shared", "/mnt/shared/runs"),
    ("cifs", "/mnt/shared", "/mnt/shared/runs"),
    ("lustre", "/scratch", "/scratch/me/runs"),
    ("gpfs", "/scratch", "/scratch"),
    ("fuse.sshfs", "/home/me/remote", "/home/me/remote/not/there/yet"),
    ("fuse.gcsfuse", "/bucket", "/bucket/x"),
]


@pytest.mark.parametrize(("kind", "point", "run"), NETWORK)
def test_sqlite_on_a_network_file_system_is_refused_with_advice(
    study: StudyConfig, kind: str, point: str, run: str
) -> None:
    mounted = [Mount(Path("/"), "ext4"), Mount(Path(point), kind)]
    with pytest.raises(SweeperError) as refused:
        refuse_network_file_system(storage_url(study, Path(run)), mounted)
    assert f"would be a SQLite database on {kind} ({point})" in str(refused.value)
    assert "postgresql+psycopg://" in str(refused.value)
    assert "runs_dir: to a local disk" in str(refused.value)
    elsewhere = with_storage(study, "postgresql+psycopg://me:secret@db/sweeper")
    refuse_network_file_system(storage_url(elsewhere, Path(run)), mounted)


LOCAL = [
    [Mount(Path("/"), "overlay"), Mount(Path("/mnt"), "nfs4"), Mount(Path("/mnt/disk"), "xfs")],
    [Mount(Path("/"), "nfs4"), Mount(Path("/"), "ext4")],  # the later mount covers the earlier one
    [Mount(Path("/"), "ext4"), Mount(Path("/mnt/dis"), "nfs4")],  # a neighbour with a similar name
    [Mount(Path("/"), "fuse.fuse-overlayfs")],
    [],
]


@pytest.mark.parametrize("mounted", LOCAL)
def test_sqlite_on_a_local_disk_is_not(study: StudyConfig, mounted: list[Mount]) -> None:
    refuse_network_file_system(storage_url(study, Path("/mnt/disk/runs")), mounted)


def test_a_password_may_hold_any_character_and_is_never_shown(
    study: StudyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "p@ss/w:rd{x}%41 #?")
    url = storage_url(
        with_storage(study, "postgresql+psycopg://me:${DB_PASSWORD}@db:5432/sweeper"), Path("run")
    )
    assert (url.password, url.host, url.port) == ("p@ss/w:rd{x}%41 #?", "db", 5432)
    assert "p@ss" not in str(url)
    monkeypatch.setenv("DB_URL", "postgresql+psycopg://me:s%40cret@db/sweeper")
    assert storage_url(with_storage(study, "${DB_URL}"), Path("run")).password == "s@cret"
    monkeypatch.setenv("DB_URL", "secret of another kind")
    with pytest.raises(SweeperError, match="no URL of a database") as refused:
        storage_url(with_storage(study, "${DB_URL}"), Path("run"))
    assert "secret" not in str(refused.value)


BAD_URLS = [
    ("postgresql+psycopg://${SWEEPER_UNSET}@db/x", "SWEEPER_UNSET is not set"),
    ("nosuchdb://db/x", "no kind of database is called 'nosuchdb'"),
    ("mysql+mysqldb://me:pw@db/x", "mysql.mysqldb needs the package MySQLdb"),
    ("sqlite://", "a study in memory cannot be continued"),
    ("sqlite:////nowhere/at/all/study.db", "unable to open database file|cannot be written"),
]


@pytest.mark.parametrize(("url", "complaint"), BAD_URLS)
def test_a_storage_that_cannot_be_is_one_error_at_once(
    study: StudyConfig, tmp_path: Path, url: str, complaint: str
) -> None:
    if "nowhere" in url:
        (tmp_path / "nowhere").write_text("a file where a directory should be")
        url = f"sqlite:///{tmp_path}/nowhere/study.db"
    with pytest.raises(SweeperError, match=complaint), driving(with_storage(study, url), tmp_path, print):
        pass


def test_a_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "results" / "trial-0000.json"
    write_whole(path, b"before")
    with limited_file_size(10), pytest.raises(OSError, match="File too large"):
        write_whole(path, b"far too long for the limit")
    assert path.read_bytes() == b"before"
    assert [p.name for p in path.parent.iterdir()] == ["trial-0000.json"]


def test_what_killed_writers_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "requests").mkdir()
    (tmp_path / "requests" / "trial-0001.parquet.123.tmp").write_bytes(b"half")
    (tmp_path / "requests" / "trial-0000.parquet").write_bytes(b"whole")
    remove_half_written(tmp_path)
    assert [p.name for p in (tmp_path / "requests").iterdir()] == ["trial-0000.parquet"]


@contextmanager
def limited_file_size(size: int) -> Iterator[None]:
    """No file of this process may grow beyond ``size`` bytes, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 1 MiB."""
    point = tmp_path / "disk"
    point.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(point)], capture_output=True)
    if done.returncode:
        pytest.skip("cannot mount a small file system here")
    yield point
    subprocess.run(["umount", "-l", str(point)], check=True)


def fill(disk: Path) -> Path:
    """Use up all space."""

    def endlessly() -> None:
        while True:
            filler.write(b"x" * 4096)

    with open(disk / "filler", "wb", buffering=0) as filler, pytest.raises(OSError, match="No space left"):
        endlessly()
    return disk / "filler"


def test_a_full_disk_is_waited_for_by_storage_and_files_alike(small_disk: Path, said: list[str]) -> None:
    run = RunDirectory(small_disk, Patience(30, said.append))
    study = sqlite_study(small_disk, run.patience)
    for keep in (
        lambda: run.write_log("trial-0000", "a line of the log\n" * 3000),
        lambda: study.set_user_attr("long", "x" * 50_000),
    ):
        filler = fill(small_disk)
        threading.Timer(1.5, filler.unlink).start()
        keep()
    assert run.log("trial-0000").stat().st_size == 54_000
    assert study.user_attrs["long"] == "x" * 50_000
    assert said[0].startswith("run directory: No space left on device")
    assert any(line.startswith("storage: database or disk is full") for line in said)
    assert sum("works again" in line for line in said) == 2


def test_a_disk_that_stays_full_loses_nothing_that_was_there(small_disk: Path) -> None:
    run = RunDirectory(small_disk, Patience(0.5))
    study = sqlite_study(small_disk, run.patience)
    study.set_user_attr("before", 1)
    run.write_log("trial-0000", "before")
    fill(small_disk)
    with pytest.raises(StorageLostError, match="No space left on device"):
        run.write_log("trial-0000", "after" * 10_000)
    with pytest.raises(StorageLostError, match="database or disk is full"):
        study.set_user_attr("after", "x" * 50_000)
    (small_disk / "filler").unlink()
    assert run.log("trial-0000").read_text() == "before"
    study.set_user_attr("later", "x" * 50_000)
    assert study.user_attrs.keys() == {"before", "later"}


def test_a_storage_that_is_read_only_ends_with_one_clear_error(study: StudyConfig, tmp_path: Path) -> None:
    sqlite_study(tmp_path, Patience(1))
    url = storage_url(with_storage(study, f"sqlite:///file:{tmp_path}/study.db?mode=ro&uri=true"), tmp_path)
    readable = optuna.load_study(study_name="s", storage=open_storage(url, Patience(0.5)))
    with pytest.raises(StorageLostError, match="attempt to write a readonly database"):
        readable.set_user_attr("kept", 1)


LONG = {"log_tail": ['\\ "quoted" naïve 漢字 \x1b[0m' * 20 for _ in range(300)]}


def test_values_that_are_too_long_for_mysql_are_stored_in_parts(tmp_path: Path) -> None:

    stored = StoredStudy(sqlite_study(tmp_path, Patience(5)))
    stored.set("record", LONG)
    stored.set("short", {"a": 1})
    attributes = stored.study.user_attrs
    assert attributes["short"] == {"a": 1}
    assert unpacked(attributes, "record") == stored.get("record") == LONG
    assert len(attributes) > 4
    assert all(len(json.dumps(value)) <= LONGEST + 2 for value in attributes.values())
    assert list(packed("record", LONG))[-1][0] == "record"  # what makes the parts valid comes last


def test_a_reader_finds_the_old_value_until_the_new_one_is_whole(tmp_path: Path) -> None:
    old, new = dict(packed("x", ["a" * 100_000])), list(packed("x", ["b" * 100_000]))
    for number, (name, value) in enumerate(new, start=1):
        old[name] = value
        assert unpacked(old, "x") == (["a" * 100_000] if number < len(new) else ["b" * 100_000])


def test_a_study_of_an_older_release_is_refused_by_name(tmp_path: Path) -> None:
    study = sqlite_study(tmp_path, Patience(5))
    study.set_user_attr("settings", {"workload": {}})  # as it was before formats had numbers
    with pytest.raises(
        StudyChangedError, match="'s' was written by sweeper an older version in format 1; this is"
    ):
        StoredStudy(study).begin({"workload": {}})


def test_a_study_begins_once_and_keeps_its_identity(tmp_path: Path) -> None:
    stored = StoredStudy(sqlite_study(tmp_path, Patience(5)))
    stored.begin({"a": 1, "b": 2})
    identity = stored.identity
    stored.begin({"b": 2, "a": 1})
    assert stored.identity == identity
    with pytest.raises(StudyChangedError, match=r"other settings \(a, c changed\)"):
        stored.begin({"a": 2, "b": 2, "c": 3})


def test_the_core_imports_neither_ray_nor_torch() -> None:
    code = "import sys, sweeper.study.sweep; print({'ray', 'torch', 'sglang'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert done.stdout.strip() == "set()", done.stderr
