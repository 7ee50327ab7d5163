"""Raw requests survive the disk."""

from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.errors import SweeperError
from sweeper.runs.request_table import read_requests, write_requests
from tests.load.simulated import Engine, requests


def test_requests_come_back_as_they_were(tmp_path: Path) -> None:
    plain = requests(Engine(), 4, seed=1)
    chain = requests(Engine(chain=3), 4, seed=1)
    failed = replace(
        plain[0], prompt="failed", first_token_s=None, arrival_s=(), arrival_tokens=(), error="x"
    )
    everything = (*plain, *chain, failed)
    write_requests(tmp_path / "a" / "r.parquet", everything)
    assert read_requests(tmp_path / "a" / "r.parquet") == everything
    write_requests(tmp_path / "plain.parquet", plain)
    assert read_requests(tmp_path / "plain.parquet") == tuple(plain)
    write_requests(tmp_path / "none.parquet", ())
    assert read_requests(tmp_path / "none.parquet") == ()


def test_a_missing_or_foreign_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(SweeperError, match=r"gone.parquet: missing"):
        read_requests(tmp_path / "gone.parquet")
    (tmp_path / "x.parquet").write_text("no table")
    with pytest.raises(SweeperError, match=r"x.parquet: no table of requests"):
        read_requests(tmp_path / "x.parquet")
