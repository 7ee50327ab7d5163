"""The status of a run: what a driver writes, and what others make of it."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from ray.dashboard.modules.job.pydantic_models import JobDetails, JobType
from ray.job_submission import JobStatus

from actors.job import job_of
from reports.console import SafeConsole
from reports.status import standing, view
from sweeper.study.live_status import LiveStatus, StatusFile, read_status, server_statuses
from sweeper.study.surroundings import Glance, Tally

TALLY = Tally(9, complete=3, failed=1, running=1, best=("EAGLE3 full 3/1/4", 1.52), eta_s=250)
GLANCES = {"trial-0004": Glance("measuring concurrency 4", "node-a:0", 118.4, 41.23)}


def written(tmp_path: Path) -> LiveStatus:
    file = StatusFile(tmp_path, "my_study")
    file.write(TALLY, server_statuses(GLANCES, {"trial-0004": "EAGLE3 full 5/1/6"}))
    found = read_status(tmp_path)
    assert found is not None
    return found


def test_what_a_driver_writes_is_read_back(tmp_path: Path) -> None:
    found = written(tmp_path)
    assert found.tally == TALLY
    assert found.servers[0].config == "EAGLE3 full 5/1/6"
    assert found.running(datetime.now(timezone.utc))
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_a_driver_that_ended_is_not_running(tmp_path: Path) -> None:
    file = StatusFile(tmp_path, "my_study")
    file.write(TALLY, ())
    file.close()
    found = read_status(tmp_path)
    assert found is not None
    assert not found.running(datetime.now(timezone.utc))
    assert "its driver has ended" in standing(found, datetime.now(timezone.utc))


def test_one_that_is_gone_or_silent_is_told_apart(tmp_path: Path) -> None:
    found, now = written(tmp_path), datetime.now(timezone.utc)
    gone = replace(found, driver=replace(found.driver, started=1))
    assert "its driver is gone" in standing(gone, now)
    elsewhere = replace(found, driver=replace(found.driver, place="another machine", host="node-b"))
    assert "no sign of life for 0:01:00 from its driver on node-b" in standing(
        elsewhere, datetime.fromisoformat(found.written_at) + timedelta(seconds=60)
    )


def test_a_file_of_something_else_is_none(tmp_path: Path) -> None:
    assert read_status(tmp_path) is None
    (tmp_path / "status.json").write_text('{"study": 1}')
    assert read_status(tmp_path) is None


def test_the_table_has_a_row_per_server_and_no_control_codes_off_a_terminal(tmp_path: Path) -> None:
    out = io.StringIO()
    SafeConsole(file=out, width=140).print(view(written(tmp_path), datetime.now(timezone.utc)))
    text = out.getvalue()
    assert "my_study: 4/9 trials (1 failed, 1 running), best EAGLE3 full 3/1/4 1.52x, ETA 0:04:10" in text
    assert re.search(r"node-a:0 +trial-0004 +EAGLE3 full 5/1/6 +measuring concurrency 4 +118 +41.2", text)
    assert "\x1b" not in text


def test_a_jobs_last_line_tells_what_its_servers_do() -> None:
    details = JobDetails(
        type=JobType.SUBMISSION, submission_id="s-1", entrypoint="sweeper run x", status=JobStatus.RUNNING
    )
    log = (
        "1/9 trials (0 failed, 1 running); trial-0001 starting\n"
        "2/9 trials (0 failed, 2 running), ETA 0:01:00; trial-0002 measuring concurrency 4, 118 tok/s, 41.2 GiB; "
        "trial-0003 warming up at concurrency 1\nsomething else\n"
    )
    job = job_of(details, log)
    assert job.progress == "2/9 trials (0 failed, 2 running), ETA 0:01:00"
    assert job.servers == (
        ("trial-0002", "measuring concurrency 4, 118 tok/s, 41.2 GiB"),
        ("trial-0003", "warming up at concurrency 1"),
    )
