"""Servers whose owner is gone and whose guardian was killed too: found by a record of their launch, and ended.

Every launch leaves a small file in a directory of the user's own: the session, when its leader started, who owns it.
Process numbers come back, so nothing is killed by number alone: the leader must have started when the record says, or
a process must carry the launch's own directory in its environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

BOOT = Path("/proc/sys/kernel/random/boot_id")
SCRATCH = "sweeper-server-"
"""How the directories for a launch's temporary files begin."""


@dataclass(frozen=True)
class Launch:
    """One server: its session, the start of the session's leader, its owner and the owner's start.

    Starts are in clock ticks since the machine's own, so that setting its clock changes nothing. ``place`` is that
    start and the namespace in which the numbers mean something. ``scratch`` is the launch's directory.
    """

    session: int
    started: int
    owner: int
    owner_started: int
    scratch: str
    place: str


def record_launch(session: int, scratch: str) -> None:
    """Note a launch of this process; where that is impossible its guardian must do."""
    started, own = _started(session), _started(os.getpid())
    if started is None or own is None:
        return
    launch = Launch(session, started, os.getpid(), own, scratch, _place())
    with contextlib.suppress(OSError):
        unfinished = _directory() / f"{session}.{os.getpid()}.tmp"
        unfinished.write_text(json.dumps(asdict(launch)))
        unfinished.replace(_path(session))


def forget_launch(session: int) -> None:
    """Nothing is left of a launch."""
    with contextlib.suppress(OSError):
        _path(session).unlink()


def reap_orphans() -> list[int]:
    """Kill what is left of servers whose owner is gone, with their files; returns the processes killed."""
    killed = []
    try:
        records = list(_directory().glob("*.json"))
    except OSError:
        return []
    for path in records:
        try:
            launch = Launch(**json.loads(path.read_text()))
        except (OSError, ValueError, TypeError):  # gone meanwhile, or written by another release
            continue
        if launch.place != _place() or _started(launch.owner) == launch.owner_started:
            continue
        for process in _left_of(launch):
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
                killed.append(process.pid)
        if Path(launch.scratch).name.startswith(SCRATCH):
            shutil.rmtree(launch.scratch, ignore_errors=True)
        path.unlink(missing_ok=True)
    return killed


def _left_of(launch: Launch) -> list[psutil.Process]:
    """Processes that are surely the launch's own."""
    leader_lives = _started(launch.session) == launch.started
    found = []
    for process in psutil.process_iter():
        try:
            in_session = os.getsid(process.pid) == launch.session and process.status() != psutil.STATUS_ZOMBIE
            if in_session and (leader_lives or process.environ().get("TMPDIR") == launch.scratch):
                found.append(process)
        except (psutil.Error, ProcessLookupError):
            continue
    return found


def _started(pid: int) -> int | None:
    """When a process started, in clock ticks since the machine did; None where there is none (any more)."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in ("Z", "X") else int(fields[18])


def _place() -> str:
    try:
        return f"{BOOT.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


def _directory() -> Path:
    """Where this user's launches are noted; nobody else may write there, for what it names is killed."""
    path = Path(tempfile.gettempdir()) / f"sweeper-launches-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise OSError(f"{path} is not a directory of this user alone")
    return path


def _path(session: int) -> Path:
    return _directory() / f"{session}.json"
