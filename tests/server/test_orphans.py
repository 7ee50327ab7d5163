"""Servers whose owner and guardian were killed: ended by their record, and nothing else is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sweeper.server import orphans
from sweeper.server.orphans import reap_orphans
from sweeper.server.process import session_members

OWNER = """
import os, sys
from pathlib import Path
from sweeper.server.command import Address
from sweeper.server.process import ServerProcess
command = [sys.executable, "-c", "import time; time.sleep(600)"]
server = ServerProcess(command, os.environ, Address(1, "k"), Path(sys.argv[1]) / "log")
print(server.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's temporary directory of this test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def until(condition: Callable[[], bool], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def start_owner(tmp_path: Path) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-c", textwrap.dedent(OWNER), str(tmp_path)]
    owner = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    session = int(owner.stdout.readline())
    until(lambda: len(session_members(session)) == 3)
    return owner, session


def kill_owner_and_watcher(owner: subprocess.Popen[str], session: int) -> None:
    """As where the guardian was killed too: the server's own processes go on."""
    [watcher] = [p for p in session_members(session) if os.getpgid(p.pid) != session]
    watcher.kill()
    owner.kill()
    owner.wait()
    until(lambda: len(session_members(session)) == 2)


def test_what_outlived_its_owner_is_ended_with_its_files(tmp_path: Path) -> None:
    owner, session = start_owner(tmp_path)
    assert reap_orphans() == []  # its owner lives
    kill_owner_and_watcher(owner, session)
    assert len(reap_orphans()) == 2
    until(lambda: session_members(session) == [])
    assert list(tmp_path.glob("sweeper-server-*")) == []
    assert list(tmp_path.glob("sweeper-launches-*/*")) == []


def test_also_without_the_leader_of_its_session(tmp_path: Path) -> None:
    owner, session = start_owner(tmp_path)
    kill_owner_and_watcher(owner, session)
    psutil.Process(session).kill()
    until(lambda: len(session_members(session)) == 1)
    assert len(reap_orphans()) == 1
    until(lambda: session_members(session) == [])


def test_another_process_under_the_same_number_is_left_alone(tmp_path: Path) -> None:
    stranger = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
    )
    try:
        orphans.record_launch(stranger.pid, str(tmp_path / "sweeper-server-x"))
        [path] = tmp_path.glob("sweeper-launches-*/*.json")
        record = json.loads(path.read_text())
        record |= {"started": record["started"] - 1, "owner_started": record["owner_started"] - 1}
        path.write_text(json.dumps(record))
        assert reap_orphans() == []
        assert stranger.poll() is None
        assert not path.exists()
    finally:
        stranger.kill()
        stranger.wait()


def test_records_that_others_could_have_written_count_for_nothing(tmp_path: Path) -> None:
    directory = tmp_path / f"sweeper-launches-{os.getuid()}"
    directory.mkdir()
    directory.chmod(0o777)
    (directory / "1.json").write_text("{}")
    assert reap_orphans() == []
    orphans.record_launch(os.getpid(), "/nowhere")
    assert sorted(p.name for p in directory.iterdir()) == ["1.json"]
