"""The files of one run: ``runs/<study>/`` and what lies where in it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import optuna
import yaml

from sweeper.baseline import read_baseline, write_baseline
from sweeper.config import StudyConfig
from sweeper.errors import RunNotFoundError, SweeperError
from sweeper.records import Baseline, RequestRecord, TrialResult
from sweeper.request_table import write_requests
from sweeper.study_file import expand, load_study_file


class RunDirectory:
    """Paths and writers of a run. ``name`` is the study's name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    @property
    def study_file(self) -> Path:
        return self.path / "study.yaml"

    @property
    def table(self) -> Path:
        return self.path / "trials.csv"

    @property
    def deploy(self) -> Path:
        return self.path / "deploy"

    def log(self, label: str) -> Path:
        return self.path / "logs" / f"{label}.log"

    def requests(self, label: str) -> Path:
        return self.path / "requests" / f"{label}.parquet"

    def write_study(self, config: StudyConfig) -> None:
        """The study file as it was understood: defaults filled in, paths absolute, secrets still ``${VAR}``."""
        self.path.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump(config.model_dump(mode="json", exclude_none=True), sort_keys=False, width=110)
        self.study_file.write_text(text, "utf-8")

    def write_baseline(self, baseline: Baseline) -> None:
        """The baseline that this run's trials are compared with."""
        write_baseline(self.path / "baseline.json", baseline)

    def read_baseline(self) -> Baseline | None:
        """What ``write_baseline`` wrote, None if it never did."""
        return read_baseline(self.path / "baseline.json")

    def write_requests(self, label: str, requests: Sequence[RequestRecord]) -> None:
        """Raw per-request rows as compressed parquet; units in ``sweeper.records.RequestRecord``."""
        write_requests(self.requests(label), requests)

    def write_result(self, label: str, result: TrialResult) -> None:
        """The raw data of one launch: its requests and its server's log."""
        self.write_requests(label, result.requests)
        self.write_log(label, result.log)

    def write_log(self, label: str, log: str) -> None:
        path = self.log(label)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(log, "utf-8")

    @contextmanager
    def driven(self) -> Iterator[None]:
        """Hold the run for this process; the lock goes with the process, however it ends.

        Raises:
            SweeperError: another process drives the study.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with open(self.path / "driver.lock", "a+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                lock.seek(0)
                raise SweeperError(
                    f"study {self.name!r} is driven by another process ({lock.read().strip()}); "
                    "wait for it, stop it, or choose another name with --name"
                ) from None
            lock.truncate(0)
            lock.write(f"pid {os.getpid()} on {os.uname().nodename}")
            lock.flush()
            yield
            lock.truncate(0)


def open_storage(config: StudyConfig, run: RunDirectory) -> optuna.storages.BaseStorage:
    """Optuna's storage: the study's URL with ``${VAR}`` expanded, or SQLite in the run directory.

    Raises:
        SweeperError: the URL cannot be opened or names an unset variable.
    """
    try:
        url = expand(config.storage) if config.storage else f"sqlite:///{run.path.resolve()}/study.db"
    except KeyError as error:
        raise SweeperError(f"storage: environment variable {error.args[0]} is not set") from None
    try:
        return optuna.storages.RDBStorage(url)
    except (
        Exception
    ) as error:  # SQLAlchemy's families differ by driver; the URL may hold a password: not shown
        raise SweeperError(f"storage: cannot be opened: {type(error).__name__}") from error


def find_run(name: str, runs_dir: str = "runs") -> RunDirectory:
    """The run that a person means: a run directory, or a study's name under ``runs``.

    Raises:
        RunNotFoundError: there is none.
    """
    for path in (Path(name), Path(runs_dir) / name):
        if (path / "study.yaml").is_file():
            return RunDirectory(path)
    known = sorted(p.parent.name for p in Path(runs_dir).glob("*/study.yaml"))
    there = f"runs here: {', '.join(known)}" if known else f"no runs in {Path(runs_dir).resolve()}"
    raise RunNotFoundError(f"no run {name!r}: neither a run directory nor a study in {runs_dir}/ ({there})")


def read_run(run: RunDirectory) -> tuple[StudyConfig, optuna.Study]:
    """The study file and the Optuna study of a run.

    Raises:
        RunNotFoundError: the storage holds no such study (yet).
    """
    config = load_study_file(run.study_file, files_must_exist=False)
    try:
        return config, optuna.load_study(study_name=config.study, storage=open_storage(config, run))
    except KeyError:
        raise RunNotFoundError(f"run {run.path}: its storage holds no study {config.study!r} yet") from None
