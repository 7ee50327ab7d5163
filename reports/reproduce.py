"""The commands that measure a study again, or one of its servers."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from reports.study_report import StudyReport

OWN = frozenset(["--host", "--port", "--api-key", "--nccl-port"])
"""Flags with a value that every launch has anew."""


def reproduce(report: StudyReport) -> list[tuple[str, str]]:
    """(what for, command) pairs."""
    name = shlex.quote(report.study)
    commands = [
        ("compute every number again from the raw requests", f"sweeper report {name} --recompute"),
        (
            "measure the whole study again, as a new one",
            f"sweeper run runs/{name}/study.yaml --name {shlex.quote(f'{report.study}_again')}",
        ),
    ]
    if report.baseline_command:
        commands.append(
            ("the server without speculation, as measured", server_command(report.baseline_command))
        )
    best = report.best
    if best and best.command:
        commands.append((f"{best.config}, as measured", server_command(best.command)))
    commands.append(("what to deploy, as a file", f"sweeper export {name}"))
    return commands


def server_command(command: Sequence[str]) -> str:
    """A recorded server command for a shell, without what belonged to that launch alone."""
    words = ["python", *command[1:]]
    kept = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if word not in OWN and before not in OWN
    ]
    return shlex.join(kept)
