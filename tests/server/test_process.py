"""A server's processes: started in their own session, ended to the last one, also when their owner is killed."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sweeper.server.command import Address
from sweeper.server.process import (
    LeakError,
    ServerDiedError,
    ServerProcess,
    StartTimeoutError,
    fresh_address,
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


@pytest.fixture
def address() -> Iterator[Address]:
    with fresh_address() as found:
        yield found


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
def test_leaving_ends_every_process(
    tmp_path: Path, address: Address, stubborn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.server.process.TERM_GRACE_S", 2.0)
    with ServerProcess(family(stubborn), os.environ, address, tmp_path / "log") as server:
        wait_until(lambda: len(session_members(server.pid)) == 4)
        assert os.getsid(server.pid) == server.pid != os.getsid(0)
    assert session_members(server.pid) == []


def test_the_server_dies_with_an_owner_that_is_killed(tmp_path: Path) -> None:
    owner = textwrap.dedent(
        f"""
        import os, time
        from pathlib import Path
        from sweeper.server.command import Address
        from sweeper.server.process import ServerProcess
        server = ServerProcess({family()!r}, os.environ, Address(1, "k"), Path({str(tmp_path / "log")!r}))
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


def test_a_server_that_exits_is_reported_with_its_log(tmp_path: Path, address: Address) -> None:
    command = [sys.executable, "-c", "print('RuntimeError: planted'); raise SystemExit(3)"]
    with (
        ServerProcess(command, os.environ, address, tmp_path / "log") as server,
        pytest.raises(ServerDiedError, match="exited with code 3") as caught,
    ):
        server.wait_until_ready(20)
    assert "RuntimeError: planted" in caught.value.log


def test_a_server_that_never_serves_runs_into_its_deadline(tmp_path: Path, address: Address) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        ServerProcess(command, os.environ, address, tmp_path / "log") as server,
        pytest.raises(StartTimeoutError, match="within 1 s"),
    ):
        server.wait_until_ready(1)


def test_a_launch_can_be_interrupted(tmp_path: Path, address: Address) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with (
        ServerProcess(command, os.environ, address, tmp_path / "log") as server,
        pytest.raises(InterruptedError),
    ):
        server.wait_until_ready(60, lambda: True)


def test_addresses_have_ports_and_keys_of_their_own() -> None:
    with fresh_address() as first, fresh_address() as second:
        ports = {first.port, first.nccl_port, second.port, second.nccl_port}
        assert len(ports) == 4
        assert all(12_000 <= port < 22_000 for port in ports)
        assert first.api_key != second.api_key


def test_a_killed_runner_does_not_hide_the_server(tmp_path: Path, address: Address) -> None:
    """What Ray does to the direct children of a worker that ends."""
    with ServerProcess(family(), os.environ, address, tmp_path / "log") as server:
        wait_until(lambda: len(session_members(server.pid)) == 4)
        psutil.Process(server.pid).send_signal(signal.SIGKILL)
        wait_until(lambda: session_members(server.pid) == [])


def test_the_key_is_not_in_the_log(tmp_path: Path, address: Address) -> None:
    command = [sys.executable, "-c", f"print('server_args', {address.api_key!r})"]
    with ServerProcess(command, os.environ, address, tmp_path / "log") as server:
        wait_until(lambda: not server.alive)
        assert server.log() == "server_args ***\n"


LITTER = textwrap.dedent(
    """
    import mmap, multiprocessing, os, tempfile, time
    name = f"/dev/shm/sweeper-test-{os.getpid()}"
    file = open(name, "wb+"); file.truncate(4096); held = mmap.mmap(file.fileno(), 4096)
    lock = multiprocessing.get_context("spawn").Lock()  # a named semaphore, mapped under another name
    tempfile.mkstemp()
    print(name, f"/dev/shm/sem.{lock._semlock.name[1:]}", tempfile.gettempdir(), flush=True)
    time.sleep(600)
    """
)


@pytest.mark.parametrize("end", ["stop", "kill the server", "kill the owner"])
def test_shared_memory_and_temporary_files_go_with_the_server(
    tmp_path: Path, address: Address, end: str
) -> None:
    """Whoever dies first. Files that others made meanwhile stay."""
    log, other = tmp_path / "log", Path(f"/dev/shm/sweeper-test-other-{os.getpid()}")
    owner = textwrap.dedent(
        f"""
        import os, sys, time
        from pathlib import Path
        from sweeper.server.command import Address
        from sweeper.server.process import ServerProcess
        command = [sys.executable, "-c", {LITTER!r}]
        server = ServerProcess(command, os.environ, Address(1, "k"), Path({str(log)!r}))
        print(server.pid, flush=True)
        sys.stdin.readline()
        server.stop()
        """
    )
    process = subprocess.Popen(
        [sys.executable, "-c", owner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    session = int(process.stdout.readline())
    wait_until(lambda: len(log.read_text().split()) == 3)
    files = [Path(name) for name in log.read_text().split()]
    other.touch()
    try:
        assert all(file.exists() for file in files)
        time.sleep(1)  # the guardian looks five times a second
        if end == "stop":
            process.communicate("now\n")
        elif end == "kill the owner":
            process.kill()
        else:
            [server] = [p for p in session_members(session) if p.cmdline()[1:] == ["-c", LITTER]]
            server.kill()
        wait_until(lambda: session_members(session) == [])
        assert [file for file in files if file.exists()] == []
        assert other.exists()
    finally:
        other.unlink()
        process.kill()
        process.wait()


def test_a_port_that_stays_taken_is_a_leak(
    tmp_path: Path, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweeper.server.process.PORT_GRACE_S", 0.5)
    with socket.socket() as other:
        other.bind((address.host, address.port))
        other.listen()
        server = ServerProcess(family(), os.environ, address, tmp_path / "log")
        with pytest.raises(LeakError, match=f"ports .*{address.port}"):
            server.stop()
    assert session_members(server.pid) == []


def test_gpu_memory_that_does_not_come_back_is_a_leak(
    tmp_path: Path, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = {"0": 2 * 2**30}
    monkeypatch.setattr("sweeper.server.process.gpu_memory_used", lambda gpus: {"0": 2**30})
    monkeypatch.setattr("sweeper.server.gpu_memory.gpu_memory_used", lambda gpus: dict(used))
    monkeypatch.setattr("sweeper.server.process.GPU_GRACE_S", 0.1)
    server = ServerProcess(family(), os.environ, address, tmp_path / "log")
    with pytest.raises(LeakError, match="1.0 GiB on GPU 0"):
        server.stop()


def test_a_lost_worker_process_is_the_servers_death(tmp_path: Path, address: Address) -> None:
    """SGLang before 0.5.10 goes on without its scheduler, and answers nothing."""
    code = (
        "import multiprocessing, time\n"
        "if __name__ == '__main__':\n"
        "    multiprocessing.get_context('spawn').Process(target=time.sleep, args=(600,)).start()\n"
        "    time.sleep(600)\n"
    )
    program = tmp_path / "server.py"
    program.write_text(code)

    def workers(server: ServerProcess) -> list[psutil.Process]:
        return [p for p in session_members(server.pid) if "spawn_main" in " ".join(p.cmdline())]

    with ServerProcess([sys.executable, str(program)], os.environ, address, tmp_path / "log") as server:
        wait_until(lambda: workers(server))
        server._note_crew()
        assert server.alive
        workers(server)[0].kill()
        wait_until(lambda: not server.alive)
        with pytest.raises(ServerDiedError, match="the server lost a worker process"):
            server.raise_if_dead()
