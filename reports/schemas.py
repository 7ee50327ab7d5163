"""JSON schemas of what ``--json`` prints: ``python -m reports.schemas docs/schemas`` writes them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import BaseModel, RootModel

from reports.exports import Export
from reports.study_report import StudyReport
from sweeper.check import CheckReport
from sweeper.config import StudyConfig
from sweeper.drafts.diagnosis import Diagnosis
from sweeper.drafts.probe_report import ProbeReport


class ProbeReports(RootModel[list[ProbeReport]]):
    """One report per draft."""


class Diagnoses(RootModel[list[Diagnosis]]):
    """One diagnosis per draft of the study."""


SCHEMAS: dict[str, type[BaseModel]] = {
    "study-file": StudyConfig,
    "check": CheckReport,
    "report": StudyReport,
    "probe": ProbeReports,
    "diagnose": Diagnoses,
    "export": Export,
}


def schema_text(model: type[BaseModel]) -> str:
    """A model's JSON schema as it stands in the file."""
    return json.dumps(model.model_json_schema(), indent=2) + "\n"


def write_schemas(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, model in SCHEMAS.items():
        (directory / f"{name}.schema.json").write_text(schema_text(model), "utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1]))
