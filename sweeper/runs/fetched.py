"""Marks a run directory that was copied from elsewhere, and may therefore be replaced by a newer copy."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

from sweeper.errors import SweeperError

MARK = "fetched.json"


def require_replaceable(target: Path) -> None:
    """Raises SweeperError if something stands at ``target`` that did not come from elsewhere."""
    if target.exists() and not (target / MARK).is_file():
        raise SweeperError(
            f"{target}: a run of this name is here already, and it was not fetched; choose another folder with --to"
        )


def mark(run: Path, source: str) -> None:
    """Note where a run was copied from."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    (run / MARK).write_text(json.dumps({"from": source, "at": now}, indent=1), "utf-8")
