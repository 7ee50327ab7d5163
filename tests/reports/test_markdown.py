"""The summary for a pull request."""

from __future__ import annotations

import pandas as pd
from markdown_it import MarkdownIt

from reports.markdown import markdown_report, markdown_table
from sweeper.search.prospect import Prospect
from sweeper.speculation import SpeculationConfig
from tests.reports.studies import study


def test_the_summary_has_the_verdict_and_tables_that_parse() -> None:
    text = markdown_report(study())
    html = MarkdownIt("commonmark").enable("table").render(text)
    assert "<h1>planted: Deploy EAGLE3 full" in html
    assert html.count("<table>") == 7
    assert "<li>Not equal on both arms: disable_overlap_schedule is True" in html


def test_the_summary_says_how_sure_the_search_is() -> None:
    prospect = Prospect(0.004, SpeculationConfig("EAGLE3", "full", 3, 1, 4), 0.91, 7, 177, enough=True)
    assert (
        "Search: search stopped by itself after 7 of 177 configs. By the model of them EAGLE3 full 3/1/4 is the "
        "fastest, and within 2 % of the best of all with probability 0.91; one more launch would gain 0.4% on average."
    ) in markdown_report(study().model_copy(update={"search": prospect}))


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
