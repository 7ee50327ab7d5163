"""A server's processes: started in their own session, ended to the last one, also when their owner is killed."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from sweeper.server.process import (
    ServerDiedError,
    ServerProcess,
    StartTimeoutError,
    free_address,
    session_members,
)

FAMILY = textwrap.dedent(
    """
    import subprocess, sys, time, signal
    if {stubborn}: signal.signal(signal.SIGTERM, signal.SIG_IGN)
    subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"])
    print("started", flush=True)
    time.sleep(600)
    """
)


def family(stubborn: bool = False) -> list[str]:
    """A process with a child that ignores SIGTERM: with runner and watcher, a session of four."""
    return [sys.executable, "-c", FAMILY.format(stubborn=stubborn)]


def wait_until(condition: object, timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return
        time.sleep(0.05)
    raise AssertionError("condition did not come true")


@pytest.mark.parametrize("stubborn", [False, True], ids=["children ignore TERM", "all ignore TERM"])
def test_leaving_ends_every_process(tmp_path: Path, stubborn: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeper.server.process.TERM_GRACE_S", 2.0)
    with ServerProcess(family(stubborn), os.environ, free_address(), tmp_path / "log") as server:
        wait_until(lambda: len(session_members(server.pid)) == 4)
        assert os.getsid(server.pid) == server.pid != os.getsid(0)
    assert session_members(server.pid) == []


def test_the_server_dies_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    owner = textwrap.dedent(
        f"""
        import os, time
        from pathlib import Path
        from sweeper.server.process import ServerProcess, free_address
        server = ServerProcess({family()!r}, os.environ, free_address(), Path({str(tmp_path / "log")!r}))
        print(server.pid, flush=True)
        time.sleep(600)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    session = int(process.stdout.readline())
    wait_until(lambda: len(session_members(session)) == 4)
    process.kill()
    process.wait()
    wait_until(lambda: session_members(session) == [])


def test_a_server_that_exits_is_reported_with_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('RuntimeError: planted'); raise SystemExit(3)"]
    with (
        ServerProcess(command, os.environ, free_address(), tmp_path / "log") as server,
        pytest.raises(ServerDiedError, match="exited with code 3") as caught,
    ):
        server.wait_until_ready(20)
    assert "RuntimeError: planted" in caught.value.log


def test_a_server_that_never_serves_runs_into_its_deadline(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        ServerProcess(command, os.environ, free_address(), tmp_path / "log") as server,
        pytest.raises(StartTimeoutError, match="within 1 s"),
    ):
        server.wait_until_ready(1)


def test_a_launch_can_be_interrupted(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        ServerProcess(command, os.environ, free_address(), tmp_path / "log") as server,
        pytest.raises(InterruptedError),
    ):
        server.wait_until_ready(60, lambda: True)


def test_addresses_lie_below_the_ephemeral_range_and_have_keys_of_their_own() -> None:
    first, second = free_address(), free_address()
    assert 10_000 <= first.port < 22_000
    assert first.api_key != second.api_key


def test_a_killed_runner_does_not_hide_the_server(tmp_path: Path) -> None:
    """What Ray does to the direct children of a worker that ends."""
    with ServerProcess(family(), os.environ, free_address(), tmp_path / "log") as server:
        wait_until(lambda: len(session_members(server.pid)) == 4)
        psutil.Process(server.pid).send_signal(signal.SIGKILL)
        wait_until(lambda: session_members(server.pid) == [])


def test_the_key_is_not_in_the_log(tmp_path: Path) -> None:
    address = free_address()
    command = [sys.executable, "-c", f"print('server_args', {address.api_key!r})"]
    with ServerProcess(command, os.environ, address, tmp_path / "log") as server:
        wait_until(lambda: not server.alive)
        assert server.log() == "server_args ***\n"
