"""The summary for a pull request."""

from __future__ import annotations

import pandas as pd
from markdown_it import MarkdownIt

from reports.markdown import markdown_report, markdown_table
from tests.reports.studies import study


def test_the_summary_has_the_verdict_and_tables_that_parse() -> None:
    text = markdown_report(study())
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "<h1>planted: Deploy EAGLE3 full" in html
    assert html.count("<table>") == 7
    assert "<li>Not equal on both arms: disable_overlap_schedule is True" in html


def test_a_cell_cannot_end_its_cell_or_hold_markup() -> None:
    html = (
        MarkdownIt("commonmark")
        .enable("table")
        .render(markdown_table(pd.DataFrame([{"a": "x | y", "b": "[l](http://e) <img src=e> *b*\nnext"}])))
    )
    assert html.count("<td>") == 2
    assert "<img" not in html
    assert "<a " not in html
    assert "<em>" not in html
