"""Gathers what is there when a study has ended: in its storage, in its run directory, and on the machine."""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import psutil

from benchmarks.chaos.evidence import Evidence, TrialSeen
from benchmarks.chaos.strikes import Striker
from benchmarks.chaos.world import (
    BROKEN_CLASS,
    BROKEN_DRAFT,
    NAME,
    World,
    descendants,
    is_actor,
    is_server,
    until_gone,
    words_of,
)
from sweeper.runs.directory import RunDirectory, read_run
from sweeper.runs.journal import read_entry
from sweeper.runs.whole_files import SCRATCH
from sweeper.search.candidates import REQUEUE, config_from, is_proposed, params_of
from sweeper.server.ports import is_free
from sweeper.space import enumerate_space
from sweeper.storage.stored_study import StoredStudy
from sweeper.storage.stored_trial import label, record_of
from sweeper.study_file.reading import load_study_file

DONE = re.compile(r"^trial (\d+) done in ", re.MULTILINE)
GONE_S = 20.0


def evidence(world: World, striker: Striker, study: Path) -> Evidence:
    """All but what is left of the cluster, which still runs."""
    wanted = frozenset(str(c.effective) for c in enumerate_space(load_study_file(study).space).candidates)
    run = RunDirectory(world.root / "runs" / NAME)
    trials, journals = _trials(run)
    said = "".join(path.read_text(errors="replace") for path in striker.outputs)
    return Evidence(
        wanted=wanted,
        broken={config: BROKEN_CLASS for config in wanted if f" {BROKEN_DRAFT} " in config},
        trials=trials,
        strikes=tuple(striker.strikes),
        announced=frozenset(map(int, DONE.findall(said))),
        journals=journals,
        given_up=tuple(striker.given_up),
        processes=_named(until_gone(_is_ours, GONE_S)),
    )


def without_the_cluster(seen: Evidence, world: World, ports: Iterable[int]) -> Evidence:
    """And what is left when the cluster is gone, too."""
    processes = _named(until_gone(lambda process: True, GONE_S))
    run = world.root / "runs" / NAME
    files = [*_files(world.temp), *run.rglob(f"*{SCRATCH}"), *(world.root / "baselines").rglob(f"*{SCRATCH}")]
    locks = [*world.temp.glob("sweeper-*/*"), run / "driver.lock"]
    return replace(
        seen,
        processes=(*seen.processes, *processes),
        ports=tuple(port for port in sorted(set(ports) - _of_strangers()) if not is_free(port)),
        files=tuple(str(file.relative_to(world.root)) for file in sorted(files)),
        locks=tuple(str(lock.relative_to(world.root)) for lock in locks if lock.is_file() and _held(lock)),
    )


def _of_strangers() -> set[int]:
    """Ports on which others than the study's processes listen: they may have come to one that a server had before."""
    own = {process.pid for process in descendants()}
    listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
    return {c.laddr.port for c in listening if c.pid is not None and c.pid not in own}


def _trials(run: RunDirectory) -> tuple[tuple[TrialSeen, ...], frozenset[int]]:
    """The study's trials, and the numbers of those with a complete result in the run directory."""
    _, study = read_run(run)
    identity = StoredStudy(study).identity
    seen, journals = [], set()
    for trial in study.trials:
        record, tag = record_of(trial), label(trial.number)
        files = (run.requests(tag), run.log(tag), run.result(tag))
        entry = read_entry(run.result(tag), identity, trial.number)
        if entry and entry.record.state.value == "COMPLETE":
            journals.add(trial.number)
        seen.append(
            TrialSeen(
                trial.number,
                str(config_from(params_of(trial))) if is_proposed(trial) else "",
                trial.state.name,
                trial.datetime_start or datetime.max,
                trial.datetime_complete,
                bool(trial.user_attrs.get(REQUEUE)),
                record.failure.kind.value if record and record.failure else "",
                tuple(str(file.relative_to(run.path)) for file in files if not file.is_file()),
            )
        )
    return tuple(seen), frozenset(journals)


def _files(temp: Path) -> Iterator[Path]:
    """What lies in the directory for temporary files, but for empty directories and the locks of CPUs, which stay."""
    for path in temp.rglob("*"):
        of_one_launch = path.name.startswith(("sweeper-actor-", "sweeper-server-"))
        if of_one_launch if path.is_dir() else path.parent.name != "sweeper-cpus":
            yield path


def _is_ours(process: psutil.Process) -> bool:
    return is_server(process) or is_actor(process) or "guardian.py" in " ".join(words_of(process)[:2])


def _named(processes: Iterable[psutil.Process]) -> tuple[str, ...]:
    return tuple(f"{process.pid} {' '.join(words_of(process))[:150]}" for process in processes)


def _held(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    return False
