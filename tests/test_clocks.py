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
    "actors/jobs.py",  # a job's name
    "reports/study_report.py",
    "sweeper/baseline.py",
    "sweeper/study/baseline_arm.py",
    "sweeper/cli/status.py",  # how old a status is, for who looks at it
    "sweeper/driver/drives.py",
    "sweeper/runs/fetched.py",
    "sweeper/driver/holder.py",
    "sweeper/study/live_status.py",
    "sweeper/trial/launch.py",
}
"""Files that write down when something was, for people; no sweep decides anything by it."""


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
