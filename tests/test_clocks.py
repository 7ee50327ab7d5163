"""Somebody may set the machine's clock: nothing that lasts is measured by it."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.command_line import REPOSITORY

WALL_CLOCK = {
    ("time", "time"),
    ("time", "time_ns"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
}
LABELS = {
    "sweeper/baseline.py",
    "sweeper/baseline_arm.py",
    "sweeper/drives.py",
    "sweeper/fetched.py",
    "sweeper/holder.py",
    "sweeper/trial.py",
    "actors/jobs.py",  # ages of jobs, for people
    "reports/study_report.py",
}
"""Files that write down when something was, for people; nothing is decided by it."""


def wall_clock_readers(root: Path) -> set[str]:
    found = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                if isinstance(owner, ast.Name) and (owner.id, node.func.attr) in WALL_CLOCK:
                    found.add(str(path.relative_to(REPOSITORY)))
    return found


def test_the_wall_clock_is_read_for_labels_only() -> None:
    readers = {
        name for room in ("sweeper", "actors", "reports") for name in wall_clock_readers(REPOSITORY / room)
    }
    assert readers - {name for name in readers if name.startswith("sweeper/testbed/")} <= LABELS
