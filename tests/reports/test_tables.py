"""The table for machines: one number per cell."""

from __future__ import annotations

import io

import pandas as pd

from reports.tables import long_table, short
from sweeper.records import Interval
from tests.reports.studies import study


def test_every_trial_and_load_has_a_row_of_plain_cells() -> None:
    table = long_table(study())
    assert len(table) == 27 * 3 + 2
    assert not any(isinstance(cell, (list, dict)) for column in table for cell in table[column])
    row = table[
        (table.num_steps == 3) & (table.topk == 4) & (table.draft == "full") & (table.load == "c=4")
    ].iloc[0]
    parts = row.target_ms + row.overhead_ms + row.drafting_ms + row.verifying_ms + row.unexplained_ms
    assert abs(parts - row.step_time_ms) < 1e-9
    assert row.speedup_low < row.speedup < row.speedup_high
    assert sum(map(int, row.histogram.split())) > 9_990


def test_parquet_holds_the_same() -> None:
    table = long_table(study())
    written = io.BytesIO()
    table.to_parquet(written, index=False)
    back = pd.read_parquet(written)
    assert list(back.columns) == list(table.columns)
    assert back.speedup.dropna().tolist() == table.speedup.dropna().tolist()


def test_an_interval_that_says_nothing_is_not_printed_to_the_last_digit() -> None:
    assert short(Interval(1.24, 1.2, 1.28)) == "1.24 [1.20-1.28]"
    assert short(Interval(1.1, 0.0004, 7400.0)) == "1.10 [<0.11, >11]"
    assert short(Interval(1.06, 0.2, 50.0)) == "1.06 [0.20, >11]"
