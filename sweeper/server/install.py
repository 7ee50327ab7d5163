"""The SGLang installation that the engine's Python interpreter sees: version, flags, resolved arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from sweeper.errors import SweeperError
from sweeper.server import resolve_args
from sweeper.server.flags import FlagTable, parse_help
from sweeper.server.log_text import last_words
from sweeper.user_cache import cached_answer, write_cached

HELP_TIMEOUT_S = 300.0
"""Importing SGLang takes half a minute on a slow disk or processor."""


class NoHelpError(SweeperError):
    """SGLang is installed, but does not start far enough to be asked anything."""


_flag_table_json: TypeAdapter[FlagTable] = TypeAdapter(FlagTable)


@lru_cache(maxsize=16)
def installed_version(python: str | None = None, search_path: str | None = None) -> str:
    """SGLang's version in an interpreter (default: the running one), e.g. ``0.5.23``.

    ``search_path`` is its PYTHONPATH, if it has one.

    Raises:
        SweeperError: the interpreter cannot be run or has no SGLang.
    """
    interpreter = python or sys.executable
    code = "import importlib.metadata as m; print(m.version('sglang'))"
    environment = {**os.environ, **({"PYTHONPATH": search_path} if search_path else {})}
    try:
        done = subprocess.run(
            [interpreter, "-c", code], capture_output=True, text=True, timeout=60, env=environment
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SweeperError(f"engine.python: cannot run {interpreter}: {error}") from None
    if done.returncode:
        raise SweeperError(
            f"SGLang is not installed for {interpreter}; install it there or set engine.python "
            "to the interpreter that has it (on a machine without a GPU: make setup)"
        )
    return done.stdout.strip()


def installed_flags(python: str | None, version: str, environment: Mapping[str, str]) -> FlagTable:
    """The flags of ``python -m sglang.launch_server --help``, asked once per interpreter and version.

    Raises:
        SweeperError: the help cannot be printed; the message holds the reason.
    """
    interpreter = python or sys.executable
    path = cached_answer("flags", interpreter, version, environment.get("PYTHONPATH", ""))
    try:
        return _flag_table_json.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        pass
    command = [interpreter, "-m", "sglang.launch_server", "--help"]
    text = _run(command, {**environment, "COLUMNS": "200"}, "", "its flags")
    table = parse_help(text)
    if "model-path" not in table.names and "model" not in table.names:
        raise SweeperError(f"SGLang {version} of {interpreter} printed a help without flags")
    write_cached(path, _flag_table_json.dump_json(table))
    return table


def resolved_arguments(
    python: str | None,
    version: str,
    environment: Mapping[str, str],
    commands: Sequence[Sequence[str]],
    key: str,
) -> list[dict[str, Any]]:
    """What SGLang makes of argument lists on this machine's processors, ``{"error": ...}`` where it refuses one.

    Asked once per ``key``, which must tell machines and checkpoints apart.

    Raises:
        SweeperError: SGLang cannot be imported there.
    """
    interpreter = python or sys.executable
    asked = json.dumps([list(words) for words in commands])
    path = cached_answer("resolved", interpreter, version, environment.get("PYTHONPATH", ""), key, asked)
    try:
        stored: list[dict[str, Any]] = json.loads(path.read_text())
    except (OSError, ValueError):
        text = _run([interpreter, resolve_args.__file__], environment, asked, "its resolved arguments")
        stored = [json.loads(line) for line in text.splitlines()]
        if len(stored) != len(commands):
            raise SweeperError(f"SGLang {version} of {interpreter} did not resolve its arguments") from None
        if not any("error" in answer for answer in stored):
            write_cached(path, json.dumps(stored).encode())
    return stored


def _run(command: Sequence[str], environment: Mapping[str, str], given: str, what: str) -> str:
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=HELP_TIMEOUT_S,
            env=dict(environment),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoHelpError(f"SGLang of {command[0]} cannot be asked for {what}: {error}") from None
    if done.returncode:
        last = last_words(done.stderr, environment)
        raise NoHelpError(f"SGLang of {command[0]} cannot be asked for {what}: {last}")
    return done.stdout
