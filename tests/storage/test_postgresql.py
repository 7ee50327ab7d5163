"""Studies in a real PostgreSQL: several drivers, one per study; drivers that are killed, a server that restarts.

Every ``sweeper run`` in the background is a process of its own, on one Ray and with the fast stand-in server.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial, TrialState

from sweeper.runs.directory import RunDirectory, read_run
from sweeper.runs.journal import entry_text, read_entry
from sweeper.search.candidates import REQUEUE, config_from, params_of
from sweeper.storage.opening import open_storage
from sweeper.storage.patience import Patience
from sweeper.storage.stored_trial import label
from tests.command_line import REPOSITORY, servers, sweeper
from tests.conftest import WriteStudy
from tests.postgresql import PASSWORD, PASSWORD_VARIABLE, PostgreSQL

pytestmark = pytest.mark.usefixtures("on_shared_ray")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    postgresql = PostgreSQL()
    yield postgresql
    postgresql.remove()


@pytest.fixture(autouse=True)
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)


class Sweeping:
    """A ``sweeper run`` in the background; its output goes to a file."""

    def __init__(self, log: Path, *words: str) -> None:
        self.log = log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sweeper", "run", *words],
                cwd=REPOSITORY,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> str:
        return self.log.read_text()

    def wait(self) -> int:
        return self.process.wait(150)

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, self.said
            assert self.process.poll() is None, self.said
            time.sleep(0.1)


Sweep = Callable[..., Sweeping]


@pytest.fixture
def sweeping(tmp_path: Path) -> Iterator[Sweep]:
    """Starts sweeps, and ends those that a failed test leaves."""
    started: list[Sweeping] = []

    def start(*words: str) -> Sweeping:
        started.append(Sweeping(tmp_path / f"sweep-{len(started)}.log", *words))
        return started[-1]

    yield start
    for sweep in started:
        if sweep.process.poll() is None:
            sweep.process.kill()
            sweep.process.wait()


def holders(server: PostgreSQL, database: str) -> str:
    """Studies that are driven now."""
    if server.ask("SELECT to_regclass('sweeper_leases')", database) == [(None,)]:
        return ""
    return str(server.ask("SELECT study FROM sweeper_leases", database))


def trials(server: PostgreSQL, database: str, study: str) -> list[FrozenTrial]:
    """The study's trials so far, none before it began."""
    if not server.ask("SELECT 1 FROM pg_tables WHERE tablename = 'alembic_version'", database):
        return []
    storage = open_storage(server.url(database), Patience(10))
    try:
        return optuna.load_study(study_name=study, storage=storage).trials
    except KeyError:
        return []


def complete(found: list[FrozenTrial]) -> list[FrozenTrial]:
    return [trial for trial in found if trial.state == TrialState.COMPLETE]


def assert_each_config_once(found: list[FrozenTrial], run: Path) -> None:
    """All four configs are measured, none twice, and what they stand on lies in the run directory."""
    done = complete(found)
    assert len(done) == len({config_from(params_of(trial)) for trial in done}) == 4
    assert all(t.user_attrs.get(REQUEUE) for t in found if t.state == TrialState.FAIL)
    for trial in done:
        tag = label(trial.number)
        for name in (f"requests/{tag}.parquet", f"logs/{tag}.log", f"results/{tag}.json"):
            assert (run / name).is_file()
    assert not list(run.rglob("*.tmp"))


def test_two_studies_in_one_database_of_which_one_driver_is_killed(
    server: PostgreSQL, write_study: WriteStudy, sweeping: Sweep, tmp_path: Path
) -> None:
    """They begin at the same time on an empty database. A third driver wants one of them, as from another machine."""
    server.create("pair")
    options = {"storage": server.study_file_url("pair"), "workload": {"max_new_tokens": 100}}
    file = write_study(**options, resources={"max_servers": 1})
    first = sweeping(str(file), "--name", "first")
    second = sweeping(str(file), "--name", "second")
    second.until(lambda: "second" in holders(server, "pair"))

    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text(file.read_text().replace(str(tmp_path / "runs"), str(tmp_path / "other_runs")))
    began = time.monotonic()
    refused = sweeper("run", str(elsewhere), "--name", "second")
    took_s = time.monotonic() - began
    assert refused.returncode == 2
    assert f"study 'second' is driven by another process (pid {second.process.pid} on " in refused.stderr
    assert f"run directory {tmp_path}/runs/second" in refused.stderr
    assert PASSWORD not in refused.stderr
    assert took_s < 20  # 4 s on a machine that has nothing else to do; here two sweeps start

    second.until(lambda: bool(complete(trials(server, "pair", "second"))))
    kept = {trial.number for trial in complete(trials(server, "pair", "second"))}
    second.process.kill()
    second.wait()
    resumed = sweeping(str(file), "--name", "second")
    assert resumed.wait() == 0, resumed.said
    assert "taking over the study from a driver that is gone" in resumed.said
    assert "Baseline reused" in resumed.said
    assert first.wait() == 0, first.said
    for name in ("first", "second"):
        assert_each_config_once(trials(server, "pair", name), tmp_path / "runs" / name)
    assert kept <= {trial.number for trial in complete(trials(server, "pair", "second"))}
    assert server.ask("SELECT count(*) FROM sweeper_leases", "pair") == [(0,)]
    assert servers(str(tmp_path)) == []
    for path in (tmp_path / "runs").rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes()


@pytest.mark.slow
def test_a_database_that_restarts_costs_a_pause_and_nothing_else(
    server: PostgreSQL, write_study: WriteStudy, sweeping: Sweep, tmp_path: Path
) -> None:
    """It goes down while a trial runs, and comes back when the trial has ended and its result wants to be stored."""
    server.create("restart")
    file = write_study(storage=server.study_file_url("restart"), workload={"max_new_tokens": 100})
    sweep = sweeping(str(file))
    run = tmp_path / "runs" / "small"
    sweep.until(lambda: bool(complete(trials(server, "restart", "small"))))
    journals = set((run / "results").iterdir())
    server.stop()
    sweep.until(lambda: set((run / "results").iterdir()) > journals)  # a result came in and is safe
    sweep.until(lambda: "storage: " in sweep.said)
    time.sleep(2)
    server.start()
    assert sweep.wait() == 0, sweep.said
    assert "storage: works again after" in sweep.said
    found = trials(server, "restart", "small")
    assert_each_config_once(found, run)
    assert len(found) == 4  # nothing was launched twice


def test_a_driver_killed_between_measuring_and_storing_loses_nothing(
    server: PostgreSQL, write_study: WriteStudy, sweeping: Sweep, tmp_path: Path
) -> None:
    """The storage is down when the result comes in, and the driver is killed while it waits."""
    server.create("killed")
    grid = {"algorithm": "EAGLE3", "drafts": "a", "num_steps": [1, 3]}
    changes = {"space": {"grids": [grid]}, "resources": {"max_servers": 1}}
    file = write_study(storage=server.study_file_url("killed"), **changes)
    sweep = sweeping(str(file))
    results = tmp_path / "runs" / "small" / "results"
    sweep.until(lambda: bool(servers(str(tmp_path / "draft_a"))))
    server.stop()
    sweep.until(lambda: results.is_dir() and any(results.glob("*.json")))
    sweep.process.kill()
    sweep.wait()
    server.start()
    before = trials(server, "killed", "small")
    [lost] = [trial for trial in before if trial.state == TrialState.RUNNING]
    assert "record" not in lost.user_attrs
    again = sweeping(str(file))
    assert again.wait() == 0, again.said
    assert f"trial {lost.number} had ended before its driver did: its result is kept" in again.said
    found = trials(server, "killed", "small")
    assert [trial.state for trial in found] == [TrialState.COMPLETE] * 2
    config, study = read_run(RunDirectory(tmp_path / "runs" / "small"))
    identity = study.user_attrs["identity"]
    entry = read_entry(results / f"{label(lost.number)}.json", identity, lost.number)
    assert entry is not None
    assert entry_text(identity, lost.number, entry.record, entry.by_load)
    assert study.trials[lost.number].value == pytest.approx(entry.speedups[str(config.objective_loads[0])][0])
    assert read_entry(results / f"{label(lost.number)}.json", "an earlier study", lost.number) is None
    assert sweeper("report", str(tmp_path / "runs" / "small"), "--recompute").returncode == 0
