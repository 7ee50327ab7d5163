"""The files of one run: ``runs/<study>/`` and what lies where in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import optuna
import yaml

from sweeper.baseline import read_baseline, write_baseline
from sweeper.config import StudyConfig
from sweeper.errors import RunNotFoundError, SweeperError
from sweeper.storage.known import note_storage, require_known_storage
from sweeper.storage.patience import IMPATIENT, Patience
from sweeper.records import Baseline, RequestRecord, TrialResult
from sweeper.runs.request_table import write_requests
from sweeper.storage.opening import READ_S, open_storage, storage_url
from sweeper.storage.stored_study import check_format
from sweeper.study_file.reading import load_study_file
from sweeper.runs.whole_files import write_whole


class RunDirectory:
    """Paths and writers of a run. ``name`` is the study's name.

    Every file is there whole or not at all; a full disk is waited for as long as ``patience`` lasts.
    """

    def __init__(self, path: Path, patience: Patience = IMPATIENT) -> None:
        self.path, self.patience = path, patience
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

    @property
    def report(self) -> Path:
        return self.path / "report"

    def log(self, label: str) -> Path:
        return self.path / "logs" / f"{label}.log"

    def requests(self, label: str) -> Path:
        return self.path / "requests" / f"{label}.parquet"

    def result(self, label: str) -> Path:
        return self.path / "results" / f"{label}.json"

    def write_study(self, config: StudyConfig) -> None:
        """The study file as it was understood: defaults filled in, paths absolute, secrets still ``${VAR}``."""
        note_storage(config.storage)
        text = yaml.safe_dump(config.model_dump(mode="json", exclude_none=True), sort_keys=False, width=110)
        self._write(self.study_file, text)

    def write_baseline(self, baseline: Baseline) -> None:
        """The baseline that this run's trials are compared with."""
        path = self.path / "baseline.json"
        self.patience("run directory", lambda: write_baseline(path, baseline))

    def read_baseline(self) -> Baseline | None:
        """What ``write_baseline`` wrote, None if it never did."""
        return read_baseline(self.path / "baseline.json")

    def write_requests(self, label: str, requests: Sequence[RequestRecord]) -> None:
        """Raw per-request rows as compressed parquet; units in ``sweeper.records.RequestRecord``."""
        self.patience("run directory", lambda: write_requests(self.requests(label), requests))

    def write_result(self, label: str, result: TrialResult) -> None:
        """The raw data of one launch: its requests and its server's log."""
        self.write_requests(label, result.requests)
        self.write_log(label, result.log)

    def write_table(self, text: str, parquet: bytes | None = None) -> None:
        """``trials.csv``, and the same as ``trials.parquet``."""
        self._write(self.table, text)
        if parquet is not None:
            self.patience("run directory", lambda: write_whole(self.table.with_suffix(".parquet"), parquet))

    def write_deployment(self, name: str, text: str) -> Path:
        """A file of ``deploy/``; returns its path."""
        return self._write_into(self.deploy, name, text)

    def write_report(self, name: str, text: str) -> Path:
        """A file of ``report/``; returns its path."""
        return self._write_into(self.report, name, text)

    def _write_into(self, directory: Path, name: str, text: str) -> Path:
        """Raises SweeperError: it is a link to somewhere else, which a run that comes from others may hold."""
        if not directory.resolve().is_relative_to(self.path.resolve()):
            raise SweeperError(
                f"{directory} leads out of the run directory, to {directory.resolve()}; remove it"
            )
        self._write(directory / name, text)
        return directory / name

    def write_log(self, label: str, log: str) -> None:
        self._write(self.log(label), log)

    def write_journal(self, label: str, text: str) -> None:
        """What a launch came to, as JSON; it comes after its raw data, so that it stands for all of them."""
        self._write(self.result(label), text)

    def _write(self, path: Path, text: str) -> None:
        content = text.encode("utf-8", errors="backslashreplace")
        self.patience("run directory", lambda: write_whole(path, content))


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
        StudyChangedError: another release of sweeper wrote it.
        SweeperError: the storage cannot be opened, or is none of this user's.
    """
    config = load_study_file(run.study_file, files_must_exist=False)
    require_known_storage(config.storage, run.path)
    storage = open_storage(storage_url(config, run.path), Patience(READ_S))
    try:
        study = optuna.load_study(study_name=config.study, storage=storage)
    except KeyError:
        raise RunNotFoundError(f"run {run.path}: its storage holds no study {config.study!r} yet") from None
    check_format(study)
    return config, study
