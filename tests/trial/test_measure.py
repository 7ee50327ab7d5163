"""What a record takes over from the running server."""

from __future__ import annotations

from typing import Any

from sweeper.records import Load, TrialRecord, TrialState
from sweeper.server.client import ServerInfo
from sweeper.speculation import SpeculationConfig
from sweeper.trial.measure import read_back

ASKED = SpeculationConfig("EAGLE3", "full", 3, 1, 4)


def overrides(engine: dict[str, Any], steps: int = 3) -> tuple[str, ...]:
    """Of a server that runs ``steps`` and says ``engine`` of itself, measured at concurrency 8."""
    record = TrialRecord(ASKED, ASKED, TrialState.FAILED)
    return read_back(
        record, ServerInfo("0.5.23", "EAGLE3", steps, 1, steps + 1, engine), (Load(1), Load(8))
    ).overrides


def test_a_server_that_runs_what_was_asked_for_overrides_nothing() -> None:
    assert overrides({"effective_max_running_requests_per_dp": 8, "dp_size": 1}) == ()


def test_another_config_than_the_rules_predict_is_said() -> None:
    (said,) = overrides({}, steps=1)
    assert "the server runs" in said
    assert "1/1/2" in said


def test_a_cache_that_holds_fewer_requests_than_a_load_is_said() -> None:
    assert overrides({"effective_max_running_requests_per_dp": 6}) == (
        "max_running_requests 8 -> 6: the KV cache holds no more",
    )


def test_the_limit_of_each_replica_counts_for_all_of_them() -> None:
    assert overrides({"effective_max_running_requests_per_dp": 4, "dp_size": 2}) == ()
