"""Raw requests as a table on disk: one row per request, compressed parquet; units in ``records.RequestRecord``."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from sweeper.errors import SweeperError
from sweeper.records import RequestRecord
from sweeper.runs.whole_files import write_whole

_LISTS = ("arrival_s", "arrival_tokens", "histogram")
_COUNTS = ("verify_rounds", "accepted_drafts")


def write_requests(path: Path, requests: Sequence[RequestRecord]) -> None:
    """Write all at once or not at all."""
    import pandas as pd

    columns = [field.name for field in fields(RequestRecord)]
    frame = pd.DataFrame({name: [getattr(request, name) for request in requests] for name in columns})
    table = io.BytesIO()
    frame.astype(dict.fromkeys(_COUNTS, "Int64")).to_parquet(table, compression="zstd", index=False)
    write_whole(path, table.getvalue())


def read_requests(path: Path) -> tuple[RequestRecord, ...]:
    """What ``write_requests`` wrote.

    Raises:
        SweeperError: the file is missing or is no such table.
    """
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        return tuple(_request(row) for row in rows)
    except FileNotFoundError:
        raise SweeperError(f"{path}: missing, so nothing can be computed from it") from None
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:  # or other columns, types
        raise SweeperError(f"{path}: no table of requests: {error}") from None


def _request(row: dict[Any, Any]) -> RequestRecord:
    values = dict(row)
    for name in _LISTS:
        values[name] = tuple(values[name].tolist()) if values[name] is not None else None
    for name in _COUNTS:
        values[name] = int(values[name]) if values[name] is not None else None
    return RequestRecord(**values)
