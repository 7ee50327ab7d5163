"""``sweeper dashboard``: the study in a real optuna-dashboard, asked over HTTP."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest
import requests

from sweeper.runs.directory import RunDirectory
from sweeper.storage.known import note_storage
from sweeper.storage.stored_study import StoredStudy
from sweeper.study.trial_notes import write_note
from sweeper.study_file.reading import load_study_file
from tests.command_line import REPOSITORY
from tests.conftest import WriteStudy
from tests.study.test_trial_notes import (
    FAILED,
    LOADS,
    MEASURED,
    SPEEDUPS,
    Candidate,
    distributions,
    end_trial,
    parameters,
)
from tests.study.test_trial_notes import RUN as CONFIG


@pytest.fixture
def run(write_study: WriteStudy, tmp_path: Path) -> RunDirectory:
    """A run with one measured trial and one that failed."""
    directory = RunDirectory(tmp_path / "runs" / "small")
    directory.path.mkdir(parents=True)
    config = load_study_file(write_study())
    directory.write_study(config)
    note_storage(config.storage)
    study = optuna.create_study(
        study_name="small", storage=f"sqlite:///{directory.path / 'study.db'}", direction="maximize"
    )
    StoredStudy(study).begin({})
    write_note(study, "Values are speedups.")
    space = distributions([Candidate(CONFIG, CONFIG, ())])
    for record, speedups in ((MEASURED, SPEEDUPS), (FAILED, {})):
        study.enqueue_trial(parameters(CONFIG))
        end_trial(study, study.ask(space), record, speedups, LOADS[:1])
    return directory


@contextmanager
def served(run: RunDirectory) -> Iterator[str]:
    """The dashboard's address while it runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sweeper", "dashboard", str(run.path), "--port", str(port)]
    process = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, env={**os.environ, "COLUMNS": "160"}
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                requests.get(f"http://127.0.0.1:{port}/", timeout=5)
                break
            except requests.ConnectionError:
                assert process.poll() is None, "the dashboard ended"
                assert time.monotonic() < deadline, "the dashboard does not listen"
                time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def ask(url: str) -> Any:
    answer = requests.get(url, timeout=10)
    answer.raise_for_status()
    return json.loads(answer.content)


def test_it_shows_readable_parameters_values_curves_and_why_a_trial_failed(run: RunDirectory) -> None:
    with served(run) as url:
        (summary,) = ask(f"{url}/api/studies")["study_summaries"]
        assert summary["study_name"] == "small"
        detail = ask(f"{url}/api/studies/{summary['study_id']}")
        assert requests.get(f"{url}/dashboard/studies/{summary['study_id']}", timeout=10).ok
    assert detail["note"]["body"] == "Values are speedups."
    measured, failed = detail["trials"]
    names = {param["name"] for param in measured["params"]}
    assert names == {"algorithm", "draft", "num_steps", "topk", "num_draft_tokens"}
    assert measured["values"] == [pytest.approx(1.9375)]
    assert [value["step"] for value in measured["intermediate_values"]] == [1, 4, 16]
    attributes = {attribute["key"] for attribute in measured["user_attrs"]}
    assert {"config", "speedup c=1", "tok_s c=16", "accept_length c=4"} <= attributes
    assert failed["state"] == "Fail"
    assert failed["note"]["body"].startswith("**CRASH**")
