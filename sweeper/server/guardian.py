"""Starts a server and lets nothing outlive its owner, however the owner goes.

Run as ``python guardian.py SCRATCH COMMAND...`` in a session of its own, with a pipe from the owner as standard
input, to which the owner never writes. Two small processes share the work:

=========  ==========================================  ===============================================
process    lives until                                 then
=========  ==========================================  ===============================================
runner     the server exits                            exits with the server's code
watcher    end of file on the pipe (the owner is       kills the runner's process group, removes SCRATCH and
           gone, even by SIGKILL), or the runner ends  what the server left in shared memory
=========  ==========================================  ===============================================

One would not do: Ray kills an ending worker's direct children, and would kill a lone guardian before it
could act. The watcher is the owner's grandchild and so survives the runner.

Files in /dev/shm belong to nobody once their processes are killed, so the watcher looks who maps them as soon as
new ones appear. It goes by inode: a POSIX semaphore is mapped under a name that is already gone. Of files that have
appeared since and that nobody maps any more, only Python's semaphores are taken for the server's.

Standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

POLL_S = 0.2
GONE_S = 10.0
SHARED_MEMORY = Path("/dev/shm")
_MAPPED = re.compile(rf"^\S+ \S+ \S+ \S+ (\d+)\s+{SHARED_MEMORY}/", re.MULTILINE)


def session_of(pid: int) -> int | None:
    """Session of a process that still runs; None for zombies and the dead."""
    try:
        state, _, _, session = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[:4]
    except (OSError, ValueError):
        return None
    return None if state in ("Z", "X") else int(session)


def pids() -> list[int]:
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def mapped_inodes(processes: Iterable[int]) -> set[int]:
    """Inodes of the files in /dev/shm that processes have mapped."""
    found: set[int] = set()
    for pid in processes:
        with contextlib.suppress(OSError):
            found.update(int(inode) for inode in _MAPPED.findall(Path(f"/proc/{pid}/maps").read_text()))
    return found


def remove_shared_memory(inodes: set[int]) -> list[Path]:
    """Delete the files of /dev/shm with these inodes, unless a process still maps them; returns their paths."""
    own = [entry for entry in os.scandir(SHARED_MEMORY) if entry.inode() in inodes] if inodes else []
    used = mapped_inodes(pids()) if own else set()
    removed = []
    for entry in own:
        if entry.inode() not in used:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)
                removed.append(Path(entry.path))
    return removed


def orphans() -> set[int]:
    """Inodes of Python's own semaphores; one that nobody maps has lost its process, whosoever it was.

    A process that is killed just after making one is gone before anybody could see it map it.
    """
    return {entry.inode() for entry in os.scandir(SHARED_MEMORY) if entry.name.startswith("sem.mp-")}


class Watcher:
    """The process that outlives the runner."""

    def __init__(self, runner: int, scratch: str) -> None:
        self.runner, self.scratch = runner, scratch
        self.session = os.getsid(0)
        self.seen = set(os.listdir(SHARED_MEMORY))
        self.older = {entry.inode() for entry in os.scandir(SHARED_MEMORY)}
        """Files that were there before the server are not its own, whoever maps them."""
        self.inodes: set[int] = set()

    def members(self) -> list[int]:
        return [pid for pid in pids() if pid != os.getpid() and session_of(pid) == self.session]

    def look(self) -> None:
        """Note who maps what, whenever new files have appeared in shared memory."""
        names = set(os.listdir(SHARED_MEMORY))
        if names - self.seen:
            self.inodes |= mapped_inodes(self.members())
        self.seen = names

    def watch(self) -> None:
        """Wait for the end of the owner or of the runner, then clean up."""
        while True:
            readable, _, _ = select.select([0], [], [], POLL_S)
            if os.getppid() != self.runner or (readable and not os.read(0, 1)):
                break
            self.look()
        self.inodes |= mapped_inodes(self.members())
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.runner, signal.SIGKILL)
        deadline = time.monotonic() + GONE_S
        while self.members() and time.monotonic() < deadline:
            time.sleep(0.05)
        remove_shared_memory((self.inodes | orphans()) - self.older)
        shutil.rmtree(self.scratch, ignore_errors=True)


def main() -> int:
    """Run the server to its end and return its exit code, 128 + n where signal n ended it."""
    runner = os.getpid()
    if os.fork() == 0:
        os.setpgid(0, 0)  # signals to the server's group are not for the watcher
        Watcher(runner, sys.argv[1]).watch()
        os._exit(0)
    server = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL)
    for sent_to_the_group in (signal.SIGTERM, signal.SIGINT):  # after the server, which must not inherit this
        signal.signal(sent_to_the_group, signal.SIG_IGN)
    code = server.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
