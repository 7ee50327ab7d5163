"""CPUs of a server's own: disjoint between processes, inherited by children, given back."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sweeper.node import cpu_share
from sweeper.node.cpu_share import CpuShare, cpus_of_device, parse_cpu_list

SHARERS = len(os.sched_getaffinity(0))

OTHER = f"""
import os, sys
from sweeper.node.cpu_share import CpuShare
share = CpuShare({SHARERS})
print(sorted(share.cpus), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


@pytest.mark.skipif(SHARERS < 2, reason="one CPU cannot be shared out")
def test_two_processes_get_disjoint_cpus_and_their_children_stay_there() -> None:
    before = os.sched_getaffinity(0)
    other = subprocess.Popen(
        [sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    theirs = other.stdout.readline().strip()
    mine = CpuShare(SHARERS)
    try:
        assert len(mine.cpus) == 1
        assert str(sorted(mine.cpus)) != theirs
        child = subprocess.run(
            [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert child.stdout.strip() == str(sorted(mine.cpus))
    finally:
        mine.close()
        other.kill()
        other.wait()
    assert os.sched_getaffinity(0) == before


def test_one_server_keeps_all_and_so_do_more_servers_than_cpus() -> None:
    before = os.sched_getaffinity(0)
    for sharers in (1, SHARERS + 1):
        assert CpuShare(sharers).cpus == frozenset()
        assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(SHARERS < 2, reason="one CPU cannot be shared out")
def test_cpus_next_to_the_gpu_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    last = max(os.sched_getaffinity(0))
    (tmp_path / "0000:3b:00.0").mkdir()
    (tmp_path / "0000:3b:00.0" / "local_cpulist").write_text(f"{last}\n")
    monkeypatch.setattr(cpu_share, "PCI", tmp_path)
    assert cpus_of_device("00000000:3B:00.0") == {last}
    share = CpuShare(SHARERS, ["00000000:3B:00.0"])
    try:
        assert share.cpus == {last}
    finally:
        share.close()


def test_cpu_lists_are_read_as_the_kernel_writes_them() -> None:
    assert parse_cpu_list("0-3,8\n") == {0, 1, 2, 3, 8}
    assert parse_cpu_list("\n") == set()
