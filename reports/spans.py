"""When every launch of a study ran, and on which server."""

from __future__ import annotations

from reports.rows import SpanRow, TrialRow
from sweeper.records import TrialRecord
from sweeper.runs.findings import Findings


def spans(found: Findings, trials: list[TrialRow]) -> list[SpanRow]:
    """Baseline, trials and confirmations with a known start, in its order; checks of the baseline keep no times."""
    rows = [
        _span("trial", f"trial {t.number}", t.server, found.records[t.number], t.number)
        for t in trials
        if t.number in found.records
    ]
    if found.baseline:
        host = found.baseline.hardware.host if found.baseline.hardware else ""
        rows.append(_span("baseline", "baseline", host, found.baseline))
    for done in found.rounds:
        name = f"confirmation {done.number}"
        rows.append(_span("confirmation", f"{name}, baseline", done.server, done.baseline))
        rows += [
            _span("confirmation", f"{name}, trial {number}", done.server, record, number)
            for number, record in done.trials.items()
        ]
    return sorted((row for row in rows if row.started_at), key=lambda row: row.started_at)


def _span(kind: str, label: str, server: str, record: TrialRecord, trial: int | None = None) -> SpanRow:
    return SpanRow(
        kind=kind,
        label=label,
        trial=trial,
        server=server or (record.hardware.host if record.hardware else "") or "?",
        started_at=record.started_at,
        start_s=record.start_s,
        measure_s=record.measure_s,
        state=record.state.value,
    )
