"""What a run knows of each of its drafts, as cases for a diagnosis."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from sweeper.config import StudyConfig
from sweeper.config import Training as TrainingSection
from sweeper.drafts.diagnosis import Case, Diagnosis, Kind, Probed, Served, Trained
from sweeper.drafts.preflight.findings import DraftReport, Level
from sweeper.drafts.probe_report import ProbeReport
from sweeper.errors import SweeperError
from sweeper.records import LoadPoint, TrialRecord
from sweeper.speculation import NO_DRAFT

probe_reports_json: TypeAdapter[list[ProbeReport]] = TypeAdapter(list[ProbeReport])
diagnoses_json: TypeAdapter[list[Diagnosis]] = TypeAdapter(list[Diagnosis])


def probe_file(run: Path) -> Path:
    """Where a run keeps what the probe said of its drafts."""
    return run / "probe.json"


def read_probes(path: Path) -> dict[str, ProbeReport]:
    """Reports by draft, as ``sweeper probe --json`` prints them.

    Raises:
        SweeperError: the file is missing or holds something else.
    """
    try:
        return {report.draft: report for report in probe_reports_json.validate_json(path.read_bytes())}
    except OSError as error:
        raise SweeperError(f"{path}: cannot be read: {error}") from None
    except ValidationError as error:
        raise SweeperError(
            f"{path}: is not what `sweeper probe --json` prints: {error.errors()[0]['msg']}"
        ) from None


def cases_of(
    config: StudyConfig,
    records: Iterable[TrialRecord],
    probes: Mapping[str, ProbeReport],
    preflight: Iterable[DraftReport] = (),
) -> list[Case]:
    """One case per draft of the study."""
    reports = list(preflight)
    by_draft: dict[str, list[TrialRecord]] = {}
    for record in records:
        if record.load_points and record.effective.draft != NO_DRAFT:
            by_draft.setdefault(record.effective.draft, []).append(record)
    return [
        Case(
            name,
            most_telling(by_draft.get(name, [])),
            trained(draft.training),
            probed(probes[name]) if name in probes else None,
            serious_findings(name, reports),
        )
        for name, draft in config.space.drafts.items()
    ]


def serious_findings(draft: str, reports: Iterable[DraftReport]) -> tuple[str, ...]:
    """What the preflight found that keeps a draft from loading, or from accepting more than a little."""
    found = [f for report in reports if report.draft == draft for f in report.findings]
    return tuple(dict.fromkeys(f"{f.what} ({f.where})" for f in found if f.level is not Level.WARNING))


def trained(section: TrainingSection | None) -> Trained | None:
    """The training's accuracies, as conditional ones."""
    if section is None:
        return None
    if section.marginal_accuracy is not None:
        return Trained.of(section.marginal_accuracy, Kind.MARGINAL)
    return (
        Trained.of(section.conditional_accuracy, Kind.CONDITIONAL) if section.conditional_accuracy else None
    )


def probed(report: ProbeReport) -> Probed:
    """The numbers of a report that a diagnosis reads."""
    served = report.served
    return Probed(
        report.depth,
        served.accept_length.value,
        tuple(served.conditional),
        tuple(served.on_true_text),
        served.wiring,
        report.trained_on,
        report.best.accept_length.value if report.trained_on else None,
        report.remedy,
    )


def most_telling(records: Sequence[TrialRecord]) -> Served | None:
    """Of one draft's configs the one that shows most: a chain before a tree, then the most steps up to 5, then fewer.

    Longer chains say little more of the first positions, and their rounds are fewer.
    """
    if not records:
        return None
    best = min(records, key=lambda r: (r.effective.topk != 1, abs(r.effective.num_steps - 5)))
    point = max(_without_length(best.load_points), key=lambda p: sum(p.histogram))
    return Served(
        best.requested,
        best.effective,
        point.accept_length.value,
        point.histogram,
        str(point.load),
        _by_length(best.load_points),
    )


def _without_length(points: Sequence[LoadPoint]) -> Sequence[LoadPoint]:
    """Points over all inputs, or those of the shortest ones where each has its bucket."""
    return [p for p in points if not p.load.bucket] or [
        p for p in points if p.load.bucket == min((q.load.bucket for q in points), key=_first_length)
    ]


def _by_length(points: Sequence[LoadPoint]) -> tuple[tuple[str, float], ...]:
    """Accept length by bucket, at the concurrency with the most buckets' first entry; () where there are none."""
    found: dict[str, float] = {}
    for point in points:
        if point.load.bucket:
            found.setdefault(point.load.bucket, point.accept_length.value)
    return tuple(sorted(found.items(), key=lambda item: _first_length(item[0])))


def _first_length(bucket: str) -> int:
    return int(bucket.split("-")[0])
