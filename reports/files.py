"""Writes what a run says into its directory: tables for machines, a page and a summary for people."""

from __future__ import annotations

import io

from reports.html import html_report
from reports.markdown import markdown_report
from reports.study_report import StudyReport
from reports.tables import long_table
from sweeper.runs.directory import RunDirectory


def write_report_files(report: StudyReport, run: RunDirectory) -> None:
    """``trials.csv`` and ``trials.parquet``, ``report/report.html`` and ``report/summary.md``."""
    table = long_table(report)
    parquet = io.BytesIO()
    table.to_parquet(parquet, index=False)
    run.write_table(table.to_csv(index=False), parquet.getvalue())
    run.write_report("summary.md", markdown_report(report))
    run.write_report("report.html", html_report(report))
