"""Port blocks: outside the ephemeral range, free, and never given twice."""

import socket
import subprocess
import sys

import pytest

from sweeper.node.machine_locks import lock_directory
from sweeper.server import ports
from sweeper.server.ports import BLOCK, NoPortError, forget_blocks_of_the_dead, is_free, port_block


def test_blocks_of_two_processes_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "FIRST", 21_000)
    monkeypatch.setattr(ports, "LAST", 21_000 + 3 * BLOCK)
    code = (
        "import sys; from sweeper.server import ports; ports.FIRST, ports.LAST = 21000, 21000 + 3 * ports.BLOCK\n"
        "with ports.port_block() as first: print(first, flush=True); sys.stdin.read()"
    )
    with port_block() as mine:
        other = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert other.stdout is not None
        theirs = int(other.stdout.readline())
        assert {mine, theirs} == {21_000, 21_000 + BLOCK}
        with pytest.raises(NoPortError), port_block():
            pass
        other.kill()
        other.wait()
        with port_block() as again:  # the lock went with its process
            assert again == theirs


def test_a_block_with_a_taken_port_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "FIRST", 21_100)
    monkeypatch.setattr(ports, "LAST", 21_100 + 3 * BLOCK)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 21_101))
        taken.listen()
        assert not is_free(21_101)
        with port_block() as first:
            assert first == 21_100 + BLOCK


def test_an_early_ephemeral_range_leaves_ports_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_ephemeral_start", lambda: 1024)
    with port_block() as first:
        assert first >= ports.FIRST


def test_blocks_end_below_the_ephemeral_range(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_ephemeral_start", lambda: ports.FIRST + 2 * BLOCK)
    with port_block() as first:
        assert first == ports.FIRST


def test_lock_files_of_the_dead_are_removed_and_those_of_the_living_stay() -> None:
    code = "from sweeper.server.ports import port_block\nwith port_block() as first: print(first, flush=True); input()"
    with port_block() as mine:
        other = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert other.stdout is not None
        directory = lock_directory(ports.LOCKS)
        theirs = directory / other.stdout.readline().strip()
        assert theirs.exists()
        other.kill()
        other.wait()
        forget_blocks_of_the_dead()
        assert not theirs.exists()
        assert (directory / str(mine)).exists()
