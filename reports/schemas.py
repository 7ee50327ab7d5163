"""JSON schemas of what ``--json`` prints: ``python -m reports.schemas docs/schemas`` writes them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import RootModel, TypeAdapter

from reports.compare import Comparison
from reports.exports import Export
from reports.leaderboard import Leaderboard
from reports.study_report import StudyReport
from sweeper.check import CheckReport
from sweeper.config import StudyConfig
from sweeper.drafts.diagnosis import Diagnosis
from sweeper.drafts.probe_report import ProbeReport
from sweeper.study.live_status import LiveStatus


class ProbeReports(RootModel[list[ProbeReport]]):
    """One report per draft."""


class Diagnoses(RootModel[list[Diagnosis]]):
    """One diagnosis per draft of the study."""


SCHEMAS: dict[str, type[Any]] = {
    "study-file": StudyConfig,
    "check": CheckReport,
    "report": StudyReport,
    "probe": ProbeReports,
    "diagnose": Diagnoses,
    "leaderboard": Leaderboard,
    "export": Export,
    "compare": Comparison,
    "status": LiveStatus,
}


def schema_text(model: type[Any]) -> str:
    """The JSON schema of a model or dataclass as it stands in the file."""
    return json.dumps(TypeAdapter(model).json_schema(), indent=2) + "\n"


def write_schemas(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, model in SCHEMAS.items():
        (directory / f"{name}.schema.json").write_text(schema_text(model), "utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
