"""The report as one HTML file that needs no network."""

from reports.html.page import html_report

__all__ = ["html_report"]
