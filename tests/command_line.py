"""Runs the ``sweeper`` command as a person does, and finds the servers it started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

REPOSITORY = Path(__file__).parent.parent


def sweeper(*words: str, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
    """``sweeper WORDS...`` to its end, on a wide terminal that is none."""
    return subprocess.run(
        [sys.executable, "-m", "sweeper", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "COLUMNS": "160"},
    )


def start_sweeper(*words: str) -> subprocess.Popen[bytes]:
    """``sweeper WORDS...`` in the background, its output in the test's."""
    return subprocess.Popen([sys.executable, "-m", "sweeper", *words], cwd=REPOSITORY)


def servers(*words: str) -> list[psutil.Process]:
    """Running SGLang launchers (or stand-ins) whose command line holds all of ``words``."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command[1:3] == ["-m", "sglang.launch_server"] and all(w in " ".join(command) for w in words):
            found.append(process)
    return found


def scheduler_of(server: psutil.Process) -> psutil.Process:
    """The scheduler of a launcher: its first worker, with or without a title."""
    commands = {p: " ".join(p.cmdline()) for p in server.children()}
    workers = [p for p, command in commands.items() if "sglang::" in command or "spawn_main" in command]
    return min(workers, key=lambda p: (p.create_time(), p.pid))
