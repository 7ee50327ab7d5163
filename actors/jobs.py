"""Sweeps as jobs of a Ray cluster: submit, list, follow, stop; all through the job server's HTTP address."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import requests
from ray.dashboard.modules.job.pydantic_models import JobDetails
from ray.job_submission import JobStatus, JobSubmissionClient

from actors.job import CODE, PYTHON, RUNS_DIR, STUDY, Job, is_sweep, job_of
from actors.job_log import LogLostError, tail
from sweeper.code_identity import code_identity, package_directories
from sweeper.errors import SweeperError
from sweeper.study_file.package import StudyPackage

STOP_GRACE_S = 120
"""What a stopped driver gets to end its servers and put its trials back; Ray's own default is 3 s."""
START_PAUSE_S = 0.5
TAIL_PAUSE_S = 2.0

HEAD_START_S = 60.0
STREAM_S, BLOCK_S = 6 * 3600, 120
NO_AGENT = "No available agent"


@dataclass(frozen=True)
class Submission:
    """How a job is to run. ``environment`` is visible to everybody who may list the cluster's jobs."""

    study: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    python: str = "python"
    driver_cpus: float = 0
    driver_resources: Mapping[str, float] = field(default_factory=dict)


class JobServer:
    """The job server of one cluster."""

    def __init__(self, address: str) -> None:
        """``actors.connect`` makes one, and says what is wrong with an address."""
        self.address = address
        for name in (
            "dashboard.modules.dashboard_sdk",
            "dashboard.modules.job.sdk",
            "_private.runtime_env.packaging",
        ):
            logging.getLogger(f"ray.{name}").setLevel(logging.WARNING)  # uploads, ignore files, connections
        self.client = JobSubmissionClient(address)

    def submit(self, package: StudyPackage, wanted: Submission) -> str:
        """Send study and code, start the driver; returns the job's id.

        Raises:
            SweeperError: a job of this study runs already, or the server refuses this one.
        """
        running = [job for job in self.jobs() if job.study == wanted.study and not job.over]
        if running:
            raise SweeperError(
                f"study {wanted.study!r} is run by job {running[0].id} already ({running[0].state}): follow it with "
                f"sweeper logs -f {running[0].id}, end it with sweeper stop {running[0].id}, or choose another --name"
            )
        words = [wanted.python, "-m", "sweeper", "run", package.file, "--name", wanted.study]
        metadata = {
            "job_name": wanted.study,
            STUDY: wanted.study,
            CODE: code_identity(),
            RUNS_DIR: package.config.runs_dir,
            PYTHON: wanted.python,
        }
        environment = {**wanted.environment, "RAY_JOB_STOP_WAIT_TIME_S": str(STOP_GRACE_S)}
        now = datetime.now(timezone.utc)
        job: dict[str, Any] = {
            "entrypoint": shlex.join([*words, *wanted.arguments]),
            "submission_id": f"sweeper-{wanted.study}-{now:%Y%m%d-%H%M%S}",
            "runtime_env": {
                "working_dir": str(package.directory),
                **shipped_code(),
                "env_vars": environment,
            },
            "metadata": metadata,
            "entrypoint_num_cpus": wanted.driver_cpus or None,
            "entrypoint_resources": dict(wanted.driver_resources) or None,
        }
        return self.send(job)

    def send(self, job: Mapping[str, Any]) -> str:
        """Submit a job; a cluster whose head node has only begun to start is waited for.

        Raises:
            SweeperError: the server refuses the job.
        """
        deadline = time.monotonic() + HEAD_START_S
        while True:
            try:
                return str(self.client.submit_job(**job))
            except (RuntimeError, ValueError, requests.RequestException) as error:
                reason = str(error).splitlines()[0]
            if NO_AGENT not in reason or time.monotonic() > deadline:
                raise SweeperError(f"{self.address}: the job was not taken: {reason}")
            time.sleep(TAIL_PAUSE_S)

    def jobs(self) -> list[Job]:
        """The sweeps that the cluster knows of, oldest first; Ray forgets them when its head restarts."""
        found = [self._read(details) for details in self.client.list_jobs() if is_sweep(details)]
        return sorted(found, key=lambda job: job.began or datetime.max.replace(tzinfo=timezone.utc))

    def find(self, which: str) -> Job:
        """The job of this id, or the newest one of this study.

        Raises:
            SweeperError: there is none; the message names those there are.
        """
        jobs = self.jobs()
        for job in reversed(jobs):
            if which in (job.id, job.study):
                return job
        there = ", ".join(f"{job.id} ({job.study or 'study not known yet'})" for job in jobs[-10:])
        raise SweeperError(
            f"{which}: neither the id of a job nor a study with one on {self.address} (there: {there or 'none'})"
        )

    def _read(self, details: JobDetails) -> Job:
        return job_of(details, self.log(str(details.submission_id)))

    def log(self, job_id: str) -> str:
        """What the driver printed so far; "" if it cannot be had, for instance since its node is gone."""
        try:
            return str(self.client.get_job_logs(job_id))
        except (RuntimeError, requests.RequestException):
            return ""

    def follow(self, job_id: str) -> Iterator[str]:
        """The driver's output as it comes, from its beginning until the job is over; broken connections are mended."""
        seen = 0
        while True:
            if self._state(job_id) == JobStatus.PENDING:  # the server does not know yet on which node to read
                time.sleep(START_PAUSE_S)
                continue
            skip = seen
            try:
                for text in tail(self.client, job_id):
                    fresh = text[skip:]
                    skip = max(0, skip - len(text))
                    seen += len(fresh)
                    if fresh:
                        yield fresh
                state = self._state(job_id)
                if state is not None and state.is_terminal():
                    return
            except LogLostError:
                pass
            time.sleep(TAIL_PAUSE_S)

    def _state(self, job_id: str) -> JobStatus | None:
        """None while the server does not answer.

        Raises:
            SweeperError: it does not know the job.
        """
        try:
            return self.client.get_job_status(job_id)
        except (RuntimeError, requests.RequestException) as error:
            if "does not exist" in str(error):
                raise SweeperError(
                    f"{job_id}: the cluster knows no such job (any more: its head forgets them when it restarts)"
                ) from None
            return None

    def node_file(self, node: str, name: str) -> Iterator[bytes]:
        """A file in a node's folder of Ray logs, in blocks: what ``ray logs`` reads, which takes no HTTP address.

        Raises:
            requests.RequestException: it is not there, or did not come to its end.
        """
        query: dict[str, str | int] = {"node_id": node, "filename": name, "lines": -1, "timeout": STREAM_S}
        with requests.get(
            f"{self.address}/api/v0/logs/file",
            params=query,
            headers=self.client._headers,
            stream=True,
            timeout=BLOCK_S,
        ) as answer:
            answer.raise_for_status()
            yield from answer.iter_content(1 << 20)

    def result(self, job_id: str) -> Job:
        return self._read(self.client.get_job_info(job_id))

    def stop(self, job_id: str, timeout_s: float = STOP_GRACE_S + 30) -> Job:
        """End the driver, and wait until it has.

        Raises:
            SweeperError: it goes on after ``timeout_s`` seconds.
        """
        try:
            self.client.stop_job(job_id)
        except RuntimeError as error:
            raise SweeperError(f"{job_id}: {error}") from None
        deadline = time.monotonic() + timeout_s
        while (state := self._state(job_id)) is None or not state.is_terminal():
            if time.monotonic() > deadline:
                raise SweeperError(
                    f"{job_id}: still running {timeout_s:.0f} s after it was told to stop; see ray job status"
                )
            time.sleep(0.5)
        return self.result(job_id)


def shipped_code() -> dict[str, Any]:
    """The part of a runtime environment that has driver and actors run exactly this sweeper."""
    return {
        "py_modules": [str(directory) for directory in package_directories()],
        "excludes": ["runs", ".git", ".venv", "**/__pycache__"],
    }
