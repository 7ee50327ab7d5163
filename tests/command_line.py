"""Runs the ``sweeper`` command, in this process or as one of its own, and finds the servers it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
from typer.testing import CliRunner

REPOSITORY = Path(__file__).parent.parent
WIDE = {"COLUMNS": "160", "TTY_COMPATIBLE": "0"}
"""A wide terminal that is none, however the tests themselves are started; conftest.py sets it."""

Done = subprocess.CompletedProcess[str]


def sweeper(*words: str) -> Done:
    """``sweeper WORDS...`` to its end, in this process: what it would print and its exit code.

    A process of its own would first import for seconds. What the command does with signals and at its interpreter's
    end needs ``sweeper_process``.
    """
    from sweeper.cli import app

    before = signal.getsignal(signal.SIGTERM)
    try:
        done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    finally:
        signal.signal(signal.SIGTERM, before)  # a sweep takes it over
    return Done(words, done.exit_code, done.stdout, done.stderr)


def sweeper_process(*words: str, timeout_s: float = 240) -> Done:
    """``sweeper WORDS...`` to its end, as a person starts it."""
    return subprocess.run(
        [sys.executable, "-m", "sweeper", *words],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **WIDE},
    )


def start_sweeper(*words: str) -> subprocess.Popen[bytes]:
    """``sweeper WORDS...`` in the background, its output in the test's."""
    return subprocess.Popen([sys.executable, "-m", "sweeper", *words], cwd=REPOSITORY)


def servers(*words: str) -> list[psutil.Process]:
    """Running SGLang launchers (or stand-ins) whose command line holds all of ``words``."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = _words(process.info["cmdline"] or [])
        if command[1:3] == ["-m", "sglang.launch_server"] and all(w in " ".join(command) for w in words):
            found.append(process)
    return found


def value_of(flag: str, server: psutil.Process) -> str:
    """What a launcher was given for ``flag``."""
    words = _words(server.cmdline())
    return words[words.index(flag) + 1]


def _words(command: list[str]) -> list[str]:
    """On the test bed a launcher's command line is one string, like a title."""
    return " ".join(command).split()


def scheduler_of(server: psutil.Process) -> psutil.Process:
    """The scheduler of a launcher: its first worker, with or without a title."""
    commands = {p: " ".join(p.cmdline()) for p in server.children()}
    workers = [p for p, command in commands.items() if "sglang::" in command or "spawn_main" in command]
    return min(workers, key=lambda p: (p.create_time(), p.pid))
