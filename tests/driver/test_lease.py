"""One driver per study: who is refused, who takes over when, and what a driver that was replaced may still write.

On SQLite and on a real PostgreSQL; the machines are processes here, and a process that must look like one on another
machine says so in its ``place``.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from sqlalchemy import create_engine, select
from sqlalchemy.engine import URL, Engine

from sweeper.config import StudyConfig
from sweeper.driver import lease as leases
from sweeper.driver.driving import driving
from sweeper.driver.holder import Holder, start_of
from sweeper.driver.lease import LEASES, Lease, leased
from sweeper.errors import LeaseLostError, SweeperError
from sweeper.storage.opening import open_storage
from sweeper.storage.patience import Patience
from tests.postgresql import PostgreSQL

pytestmark = pytest.mark.xdist_group("postgresql")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    postgresql = PostgreSQL()
    yield postgresql
    postgresql.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> URL:
    if request.param == "sqlite":
        return URL.create("sqlite", database=str(tmp_path / "study.db"))
    number = request.node.name.split("[")[0][-40:].lower()
    created: URL = request.getfixturevalue("server").create(f"{number}_{os.getpid()}")
    return created


@pytest.fixture
def engine(url: URL) -> Iterator[Engine]:
    engine = create_engine(url)
    yield engine
    engine.dispose()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent driver is replaced after 2 s instead of 30."""
    monkeypatch.setattr(leases, "SILENT_S", 2.0)
    monkeypatch.setattr(leases, "TELL_AFTER_S", 0.5)


def here(tmp_path: Path) -> Holder:
    return Holder.this_process(tmp_path)


def elsewhere(tmp_path: Path) -> Holder:
    """A driver on another machine, as far as this one can tell."""
    return replace(here(tmp_path), host="gpu-node-7", place="another boot")


def stopped(lease: Lease) -> Lease:
    """As when its machine is cut off, or the process is killed or suspended: it shows no sign of life any more."""
    lease._end.set()
    lease._beating.join()
    return lease


def token(engine: Engine) -> str | None:
    with engine.connect() as connection:
        return connection.execute(select(LEASES.c.token)).scalar()


def test_a_second_driver_is_refused_within_seconds_and_told_who_has_the_study(
    engine: Engine, tmp_path: Path
) -> None:
    with leased(engine, "s", elsewhere(tmp_path), Patience(5)):
        began = time.monotonic()
        with pytest.raises(SweeperError) as refused, leased(engine, "s", here(tmp_path), Patience(5)):
            pass
        assert time.monotonic() - began < 3
        assert f"study 's' is driven by another process (pid {os.getpid()} on gpu-node-7" in str(
            refused.value
        )
        assert f"run directory {tmp_path}" in str(refused.value)
        with leased(engine, "another study", here(tmp_path), Patience(5)):
            pass
    with leased(engine, "s", here(tmp_path), Patience(5)) as next_one:  # released: to be had at once
        assert token(engine) == next_one.token


def test_a_driver_killed_on_this_machine_is_replaced_at_once(engine: Engine, tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    other = replace(here(tmp_path), pid=child.pid, started=start_of(child.pid) or 0)
    assert not other.gone()
    stopped_lease = Lease(engine, "s", other)
    stopped_lease.acquire(Patience(5))
    stopped(stopped_lease)
    child.kill()  # not yet waited for: a zombie is gone, too
    time.sleep(0.2)
    said: list[str] = []
    began = time.monotonic()
    with leased(engine, "s", here(tmp_path), Patience(5, said.append)):
        assert time.monotonic() - began < 1
    assert said == [f"taking over the study from a driver that is gone ({other})"]
    child.wait()


def test_a_pid_that_was_given_away_again_is_no_sign_of_life(tmp_path: Path) -> None:
    assert not here(tmp_path).gone()
    assert replace(here(tmp_path), started=1).gone()  # the same pid, another process
    assert not replace(here(tmp_path), started=1, place="another boot").gone()  # who knows


@pytest.mark.usefixtures("quick")
def test_a_silent_driver_elsewhere_is_replaced_after_a_while(engine: Engine, tmp_path: Path) -> None:
    first = Lease(engine, "s", elsewhere(tmp_path))
    first.acquire(Patience(5))
    stopped(first)
    said: list[str] = []
    began = time.monotonic()
    with leased(engine, "s", here(tmp_path), Patience(5, said.append)):
        assert 2 <= time.monotonic() - began < 4
    assert "shows no sign of life; taking it over in 1 s if that stays so" in said[0]


@pytest.mark.usefixtures("quick")
def test_whoever_was_replaced_notices_and_writes_nothing_more(
    url: URL, engine: Engine, tmp_path: Path
) -> None:
    """Suspended between two writes, replaced, woken: its next transaction is rolled back, and the loop is told."""
    slept = Lease(engine, "s", elsewhere(tmp_path))
    slept.acquire(Patience(5))
    storage = open_storage(url, Patience(5), slept.fence)
    study = optuna.create_study(study_name="s", storage=storage)
    trial = study.ask()
    stopped(slept)
    with leased(engine, "s", here(tmp_path), Patience(5)) as now:
        assert not slept.lost  # it has not woken yet
        for write in (
            lambda: study.set_user_attr("stale", 1),
            lambda: study.tell(trial, 1.0),
            lambda: study.ask(),
            lambda: study.enqueue_trial({"x": 1}),
        ):
            with pytest.raises(LeaseLostError, match=r"study 's' was taken over by another process \(pid"):
                write()
        assert [t.state.name for t in study.get_trials()] == ["RUNNING"]
        assert "stale" not in study.user_attrs
        with pytest.raises(LeaseLostError):
            slept.check()
        now.check()
        slept.release()
        assert token(engine) == now.token  # a late release is not the other's


@pytest.mark.usefixtures("quick")
def test_a_driver_that_still_beats_learns_that_it_was_replaced(engine: Engine, tmp_path: Path) -> None:
    lost = Lease(engine, "s", elsewhere(tmp_path))
    lost.acquire(Patience(5))
    other = Lease(engine, "s", here(tmp_path))
    row = lost._look()
    while row is None or not other._replace(row):  # as if it had been silent
        row = lost._look()
    deadline = time.monotonic() + 5
    while not lost.lost:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with pytest.raises(LeaseLostError):
        lost.check()


@pytest.mark.usefixtures("quick")
def test_silence_while_the_database_is_down_counts_for_nothing(server: PostgreSQL, tmp_path: Path) -> None:
    """It is down for longer than a driver may be silent; both wait, and the holder keeps the study."""
    url = server.create("silence")
    with leased(create_engine(url, pool_pre_ping=True), "s", elsewhere(tmp_path), Patience(20)) as holder:
        said: list[str] = []
        server.stop()
        threading.Timer(4, server.start).start()
        with pytest.raises(SweeperError, match="is driven by another process"):
            Lease(create_engine(url, pool_pre_ping=True), "s", here(tmp_path)).acquire(
                Patience(20, said.append)
            )
        assert any(line.startswith("storage: works again") for line in said)
        holder.check()


def contend(url: str, number: int, results: multiprocessing.SimpleQueue[tuple[int, str]]) -> None:
    engine = create_engine(url)
    lease = Lease(engine, "s", replace(Holder.this_process(Path()), place=f"machine {number}"))
    try:
        lease.acquire(Patience(20))
        results.put((number, "has it"))
        time.sleep(4)
        lease.check()
    except SweeperError as error:
        results.put((number, str(error)))
    os._exit(0)


def test_of_several_that_start_at_the_same_time_one_gets_it(url: URL) -> None:
    """On an empty database, so that they also create its table at the same time."""
    spawn = multiprocessing.get_context("fork")
    results: multiprocessing.SimpleQueue[tuple[int, str]] = spawn.SimpleQueue()
    text = url.render_as_string(hide_password=False)
    drivers = [spawn.Process(target=contend, args=(text, number, results)) for number in range(4)]
    for driver in drivers:
        driver.start()
    said = [results.get()[1] for _ in drivers]
    for driver in drivers:
        driver.join(20)
    assert said.count("has it") == 1
    assert sum("is driven by another process" in line for line in said) == 3


def drive(study: StudyConfig, path: Path, ready: multiprocessing.synchronize.Event) -> None:
    with driving(study, path, print):
        ready.set()
        signal.pause()


def test_a_sqlite_study_has_one_driver_from_any_run_directory(study: StudyConfig, tmp_path: Path) -> None:
    """Its database lies elsewhere, so that the lock in the run directory is not enough; a killed one leaves none."""
    shared = study.model_copy(update={"storage": f"sqlite:///{tmp_path}/shared.db"})
    spawn = multiprocessing.get_context("fork")
    ready = spawn.Event()
    first = spawn.Process(target=drive, args=(shared, tmp_path / "one", ready))
    first.start()
    assert ready.wait(30)
    complaint = rf"pid {first.pid} on .*, run directory {tmp_path}/one"
    with pytest.raises(SweeperError, match=complaint), driving(shared, tmp_path / "two", print):
        pass
    with driving(shared.model_copy(update={"study": "other"}), tmp_path / "three", print):
        pass
    first.kill()
    first.join()
    with driving(shared, tmp_path / "two", print):
        pass
