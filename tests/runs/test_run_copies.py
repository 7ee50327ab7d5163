"""Copies of a run directory: as an archive, at a URL, and which of several is the newest."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from sweeper.driver.drives import JOB_CONFIG, add_drive, inside_job, read_drives, run_path, submission_id
from sweeper.errors import SweeperError
from sweeper.runs.mirror import Mirror, MirrorThread
from sweeper.runs.archive import pack_run, set_aside, unpack_run
from tests.command_line import sweeper
from tests.conftest import WriteStudy


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with a trial, its database held open by a writer in the middle of a transaction."""
    run = tmp_path / "node" / "small"
    (run / "requests").mkdir(parents=True)
    (run / "requests" / "trial-0000.parquet").write_bytes(b"\x00" * 1000)
    (run / "requests" / "trial-0001.parquet.7.tmp").write_bytes(b"half")
    (run / "study.yaml").write_text("study: small\n")
    (run / "driver.lock").write_text("pid 1")
    with closing(sqlite3.connect(run / "study.db")) as database:
        database.execute("create table trials (number integer)")
        database.execute("insert into trials values (0)")
        database.commit()
    add_drive(run)
    return run


def numbers(run: Path) -> list[int]:
    with closing(sqlite3.connect(run / "study.db")) as database:
        return [number for (number,) in database.execute("select number from trials")]


def names(run: Path) -> set[str]:
    return {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}


WHOLE = {"requests/trial-0000.parquet", "study.yaml", "study.db", "drives.json"}


def test_an_archive_holds_what_is_finished_and_the_database_as_of_the_last_commit(
    run: Path, tmp_path: Path
) -> None:
    with closing(sqlite3.connect(run / "study.db", isolation_level=None)) as writer:
        writer.execute("begin immediate")
        writer.execute("insert into trials values (1)")
        with (tmp_path / "a.tar").open("wb") as archive:
            pack_run(run, archive)
        writer.execute("rollback")
    copy = tmp_path / "here" / "small"
    unpack_run(tmp_path / "a.tar", copy)
    assert names(copy) == WHOLE
    assert numbers(copy) == [0]
    assert [p.name for p in copy.parent.iterdir()] == ["small"]


def test_an_archive_that_reaches_outside_or_is_cut_off_changes_nothing(run: Path, tmp_path: Path) -> None:
    with (tmp_path / "a.tar").open("wb") as archive:
        pack_run(run, archive)
    whole = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 3])
    with tarfile.open(tmp_path / "evil.tar", "w") as tar:
        tar.add(run / "study.yaml", "../../escaped")
    for name in ("cut.tar", "evil.tar"):
        with pytest.raises(SweeperError, match="archive"):
            unpack_run(tmp_path / name, tmp_path / "here" / "small")
    assert not (tmp_path / "here" / "small").exists()
    assert not (tmp_path / "escaped").exists()


def test_a_mirror_follows_a_run_and_gives_it_back(run: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    mirror = Mirror(url, "small")
    assert mirror.drives() == 0
    assert mirror.push(run) == 3
    (run / "requests" / "trial-0001.parquet").write_bytes(b"\x01" * 500)
    with closing(sqlite3.connect(run / "study.db")) as database:
        database.execute("insert into trials values (1)")
        database.commit()
    assert mirror.push(run) == 1  # what was there already is not sent again
    assert not list((tmp_path / "bucket").rglob("*.part"))

    other = Mirror(url, "small")
    assert other.drives() == 1
    there = tmp_path / "other node" / "small"
    other.pull(there)
    assert names(there) == WHOLE | {"requests/trial-0001.parquet"}
    assert numbers(there) == [0, 1]


def test_a_mirror_that_lost_a_file_is_refused(run: Path, tmp_path: Path) -> None:
    mirror = Mirror(f"file://{tmp_path}/bucket", "small")
    mirror.push(run)
    (tmp_path / "bucket/small/requests/trial-0000.parquet").write_bytes(b"short")
    with pytest.raises(SweeperError, match="has 5 bytes instead of 1000"):
        mirror.pull(tmp_path / "there")
    manifest = tmp_path / "bucket/small/manifest.json"
    manifest.write_text(json.dumps({"files": {"../../escaped": 5}}))
    with pytest.raises(SweeperError, match="outside of the run"):
        mirror.pull(tmp_path / "there")
    assert not (tmp_path / "there").exists()


def test_a_mirror_that_cannot_be_written_is_told_once_and_holds_nothing_up(run: Path, tmp_path: Path) -> None:
    (tmp_path / "bucket").write_text("a file where a folder should be")
    told: list[str] = []
    with MirrorThread(Mirror(f"file://{tmp_path}/bucket", "small"), run, told.append) as thread:
        thread.push_soon()
    assert len(told) == 2
    assert "cannot be kept up" in told[0]
    assert "is behind" in told[1]


@pytest.mark.parametrize("url", ["nowhere://x/y", "not a url", "s3//x"])
def test_a_url_that_names_no_store_is_an_error(url: str) -> None:
    with pytest.raises(SweeperError, match="artifacts: "):
        Mirror(url, "small")


def test_the_longest_list_of_drivers_is_the_newest_copy(run: Path) -> None:
    add_drive(run)
    assert len(read_drives(run)) == 2
    assert read_drives(run.with_name("nothing")) == []
    aside = set_aside(run)
    assert aside == run.with_name("small.older-1")
    assert not run.exists()
    assert set_aside(run) is None


def test_a_job_keeps_its_run_out_of_the_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert run_path("runs", "small", in_job=False) == Path("runs/small")
    assert run_path("runs", "small", in_job=True) == Path("/data/sweeper/runs/small")
    assert run_path("/shared", "small", in_job=True) == Path("/shared/small")
    job = {JOB_CONFIG: json.dumps({"metadata": {"job_submission_id": "sweeper-1"}})}
    assert inside_job(job)
    assert submission_id(job) == "sweeper-1"
    assert not inside_job({})
    assert submission_id({}) == ""


def test_a_run_that_was_lost_comes_back_from_its_artifacts(write_study: WriteStudy) -> None:
    """The machine is gone, and with it the run directory; the same command finds nothing left to do."""
    path = write_study(search={"max_trials": 1}, artifacts=f"file://{write_study().parent}/bucket")
    done = sweeper("run", str(path))
    assert done.returncode == 0, done.stderr
    run = path.parent / "runs" / "small"
    run.rename(run.with_name("gone"))
    again = sweeper("run", str(path))
    assert again.returncode == 0, again.stderr
    assert "small continues the run from file://" in again.stdout
    assert "trial 0 done" not in again.stdout
    assert names(run) >= names(run.with_name("gone")) - {"driver.lock"}
    fetched = sweeper(
        "fetch", "small", "--artifacts", f"file://{path.parent}/bucket", "--to", str(path.parent)
    )
    assert fetched.returncode == 0, fetched.stderr
    assert sweeper("report", str(path.parent / "small")).returncode == 0
