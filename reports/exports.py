"""Writes deployment files into a run's ``deploy/`` folder."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel

from reports.deployment.sglang import sglang_yaml
from reports.study_report import StudyReport, TrialRow
from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.run_directory import RunDirectory

FORMATS: dict[str, tuple[str, Callable[[StudyConfig, StudyReport, TrialRow | None], str]]] = {
    "sglang": ("sglang.yaml", sglang_yaml),
}


class Export(BaseModel):
    """What was exported: ``speculates`` is false where nothing beats the baseline."""

    format: str
    path: str
    speculates: bool
    trial: int | None
    config: str


def write_export(config: StudyConfig, report: StudyReport, run: RunDirectory, format: str) -> Export:
    """Write the winner (or the plain server) in a format.

    Raises:
        SweeperError: nothing was measured yet.
    """
    if not report.baseline or not report.finished:
        raise SweeperError(f"run {run.path}: no trial is complete yet, so there is nothing to export")
    name, render = FORMATS[format]
    best = report.best
    path = run.write_deployment(name, render(config, report, best))
    return Export(
        format=format,
        path=str(path),
        speculates=best is not None,
        trial=best.number if best else None,
        config=str(best.config) if best else "no speculation",
    )
