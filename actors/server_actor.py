"""One Ray actor holds the GPUs and CPUs of one SGLang server and runs one trial at a time on them."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path

import psutil

from sweeper.hardware import visible_hardware
from sweeper.records import Hardware, TrialResult
from sweeper.trial import run_trial
from sweeper.trial_order import TrialOrder, TrialPlan, Watch

SCRATCH = "sweeper-actor-"


def _remove_scratch_of_the_dead() -> None:
    """Directories of actors of this machine that were killed before they could remove them."""
    for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        pid = path.name.removeprefix(SCRATCH).split("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(path, ignore_errors=True)


class ServerActor:
    """The class behind the Ray actor; ``actors.pool`` reserves its resources and creates it.

    ``run_trial`` blocks for minutes, so the actor runs with two threads: the other one answers ``phase``
    and takes ``interrupt``.
    """

    def __init__(self, plan: TrialPlan) -> None:
        self._plan = plan
        self._phase = "idle"
        self._stop = threading.Event()
        self._leak: str | None = None
        _remove_scratch_of_the_dead()
        self._scratch = tempfile.TemporaryDirectory(prefix=f"{SCRATCH}{os.getpid()}-")

    def hardware(self) -> Hardware:
        return visible_hardware(self._plan.study.engine.device)

    def run_trial(self, tag: str, order: TrialOrder) -> TrialResult:
        """Measure a candidate; every outcome but the actor's own death is a result.

        Raises:
            RuntimeError: an earlier server left something behind on this actor's processors.
        """
        if self._leak:
            raise RuntimeError(f"this actor takes no further trial: {self._leak}")
        watch = Watch(self._set_phase, self._stop.is_set)
        log = Path(self._scratch.name) / f"{tag}.log"
        try:
            result = run_trial(self._plan, order, log, watch)
            self._leak = result.leak
            return result
        finally:
            log.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove the actor's files, before it is killed."""
        self._scratch.cleanup()

    def phase(self) -> str:
        return self._phase

    def interrupt(self) -> None:
        """Make the running trial end early, its server stopped, as INTERRUPTED."""
        self._stop.set()

    def _set_phase(self, text: str) -> None:
        self._phase = text
