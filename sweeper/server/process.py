"""Owns the processes of one SGLang server: start, wait until it serves, stop, leave nothing behind."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import psutil

from sweeper.server import guardian
from sweeper.server.client import ServerClient, ServerUnreachableError
from sweeper.server.command import Address
from sweeper.server.gpu_memory import gpu_memory_used, visible_gpus, wait_for_gpu_memory
from sweeper.server.log_text import Cleaner, read_log
from sweeper.server.orphans import SCRATCH, forget_launch, record_launch
from sweeper.server.ports import EVERYWHERE, is_free, port_block

TERM_GRACE_S = 20.0
KILL_GRACE_S = 10.0
PORT_GRACE_S = 10.0
GPU_GRACE_S = 30.0
DUMP_S = 20.0
POLL_S = 0.25

PORT_TAKEN = re.compile(r"\[Errno 98\]|Port is already in use|[Aa]ddress already in use")
"""SGLang prints it after loading, and then goes on for two minutes, or even says that it is ready."""

CREW = ("sglang::", "multiprocessing.spawn")
"""What stands in the command lines of SGLang's worker processes, before or after they got a title. All of them are
needed; releases before 0.5.10 go on without them, and answer nothing."""


class ServerDiedError(Exception):
    """The server ended or never served; ``log`` is what it printed."""

    def __init__(self, message: str, log: str) -> None:
        self.log = log
        super().__init__(message)


class StartTimeoutError(ServerDiedError):
    """The server did not serve before its deadline."""


class LeakError(Exception):
    """Something of a stopped server is still there: processes, a port, or GPU memory."""


@contextmanager
def fresh_address(node: str = "") -> Iterator[Address]:
    """Ports that are this launch's own while the context lasts, and a key that nobody else knows.

    ``node``: this node's address, where its ranks meet over TCP; empty for a server that needs no such place.
    """
    with port_block() as first:
        host = f"[{node}]" if ":" in node else node
        meeting = f"{host}:{first + 1}" if node else ""
        yield Address(first, secrets.token_hex(16), nccl_port=first + 1, meeting=meeting)


class ServerProcess:
    """A running server as a context manager; leaving it ends every process of the server's session.

    The server runs under a guardian in a session of its own, so that it dies with its owner even when the
    owner is killed with SIGKILL, and so that one signal reaches all of its processes. It has a directory for
    temporary files (sockets) of its own; the guardian removes that and what is left in shared memory.
    """

    def __init__(
        self,
        command: list[str],
        environment: Mapping[str, str],
        address: Address,
        log: Path,
        owns_gpus: bool = True,
    ) -> None:
        """Start it. ``owns_gpus``: nobody else uses its GPUs, so that their memory must come back."""
        self.address = address
        self.client = ServerClient(address)
        self._log_path = log
        self._clean = Cleaner(environment, address.api_key)
        self._crew: dict[psutil.Process, str] = {}
        self._scratch = tempfile.mkdtemp(prefix=SCRATCH)
        self._gpu_memory = gpu_memory_used(visible_gpus(environment)) if owns_gpus else {}
        self._stopped = False
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "wb", opener=_private) as output:
            self._process = subprocess.Popen(
                [sys.executable, guardian.__file__, self._scratch, *command],
                env=_with_scratch(environment, self._scratch),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        record_launch(self._process.pid, self._scratch)

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process group (and session) of the server."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the launcher lives and every worker process that was there when it began to serve."""
        return self._process.poll() is None and not self._lost_workers()

    def log(self) -> str:
        """What the server printed so far, without secrets and control sequences."""
        return self._clean(read_log(self._log_path))

    def raise_if_dead(self) -> None:
        """Raises ServerDiedError if the launcher or a worker is gone."""
        code = self._process.poll()
        if code is not None:
            raise ServerDiedError(f"the server exited with code {code}", self.log())
        lost = self._lost_workers()
        if lost:
            raise ServerDiedError(f"the server lost {', '.join(lost)}", self.log())

    def wait_until_ready(self, timeout_s: float, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Block until *this* server serves: it alone knows the launch's key, and says it is ready.

        Raises:
            ServerDiedError: it exited first, or found its port taken.
            StartTimeoutError: it took longer than ``timeout_s`` seconds.
            InterruptedError: ``interrupted`` became true.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if interrupted():
                raise InterruptedError("launch interrupted")
            self.raise_if_dead()
            try:
                if self.client.is_ready():
                    self._note_crew()
                    return
            except ServerUnreachableError:
                pass
            if PORT_TAKEN.search(read_log(self._log_path)):
                raise ServerDiedError("the server found its port taken", self.log())
            time.sleep(POLL_S)
        raise StartTimeoutError(f"the server did not serve within {timeout_s:.0f} s", self.log())

    def stacks(self) -> str:
        """Where every process of the server stands, by py-spy; why not, if it cannot be told."""
        beside = Path(sys.executable).with_name("py-spy")
        py_spy = shutil.which("py-spy") or (str(beside) if beside.exists() else None)
        if py_spy is None:
            return "no stack dump: py-spy is not installed"
        dumps = []
        deadline = time.monotonic() + DUMP_S
        for process in self._crew or self._members():
            if time.monotonic() > deadline:
                break
            command = [py_spy, "dump", "--nonblocking", "--pid", str(process.pid)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=5)
            except subprocess.TimeoutExpired:
                dumps.append(f"process {process.pid}: py-spy did not end")
            else:
                dumps.append((done.stdout or f"process {process.pid}: {done.stderr}").strip())
        return "\n\n".join(dumps)

    def stop(self, at_once: bool = False) -> None:
        """End the server in order, or ``at_once`` with SIGKILL if it hangs, and wait until nothing is left.

        In order: abort the requests, which it would otherwise finish first; TERM to the group; KILL after a
        grace period. What is left of a server that lost a process is killed at once. Calling it again does nothing.

        Raises:
            LeakError: a process survived SIGKILL, or the ports or the GPU memory did not come back.
        """
        if self._stopped:
            return
        self._stopped = True
        in_order = self.alive and not at_once
        if in_order:
            self.client.abort_all()
            self._signal(signal.SIGTERM)
        if not (in_order and self._gone(TERM_GRACE_S)):
            self._signal(signal.SIGKILL)
            if not self._gone(KILL_GRACE_S):
                raise LeakError(f"processes survived SIGKILL: {self._members()}")
        if self._process.stdin:
            self._process.stdin.close()
        shutil.rmtree(self._scratch, ignore_errors=True)  # the guardian may have been killed before it could
        forget_launch(self.pid)
        taken = PORT_TAKEN.search(read_log(self._log_path))
        if not taken:  # otherwise someone else holds it, and may go on doing so
            self._wait_for_ports()
        held = wait_for_gpu_memory(self._gpu_memory, GPU_GRACE_S) if self._gpu_memory else {}
        if held:
            listed = ", ".join(f"{size / 2**30:.1f} GiB on GPU {gpu}" for gpu, size in held.items())
            raise LeakError(f"memory is still held {GPU_GRACE_S:.0f} s after the server's end: {listed}")

    def _wait_for_ports(self) -> None:
        deadline = time.monotonic() + PORT_GRACE_S
        ports = [port for port in (self.address.port, self.address.nccl_port) if port]
        host = EVERYWHERE if self.address.meeting else self.address.host
        while taken := [port for port in ports if not is_free(port, host)]:
            if time.monotonic() > deadline:
                raise LeakError(f"ports are still taken after the server's end: {taken}")
            time.sleep(POLL_S)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def _gone(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None and not self._members():
                return True
            if self._process.poll() is not None:
                self._signal(signal.SIGKILL)  # the launcher is gone: nothing left to shut down in order
            time.sleep(0.1)
        return False

    def _members(self) -> list[psutil.Process]:
        return session_members(self.pid)

    def _lost_workers(self) -> list[str]:
        return [f"{name} ({process.pid})" for process, name in self._crew.items() if not _lives(process)]

    def _note_crew(self) -> None:
        for process in self._members():
            with contextlib.suppress(psutil.Error):  # a short-lived helper, gone meanwhile
                command = " ".join(process.cmdline()).strip()
                if any(part in command for part in CREW):
                    titled = command.startswith(CREW[0])
                    self._crew[process] = command if titled else "a worker process"


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def session_members(session: int) -> list[psutil.Process]:
    """Live (not zombie) processes of a session."""
    members = []
    for process in psutil.process_iter(["pid", "status"]):
        try:
            if os.getsid(process.pid) == session and process.info["status"] != psutil.STATUS_ZOMBIE:
                members.append(process)
        except ProcessLookupError:
            continue
    return members


def _with_scratch(environment: Mapping[str, str], scratch: str) -> dict[str, str]:
    """Temporary files into the launch's own directory, but not torch's compile cache, which later starts reuse."""
    with contextlib.suppress(KeyError, OSError):  # a user id without a name
        cache = Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
        environment = {"TORCHINDUCTOR_CACHE_DIR": str(cache), **environment}
    return {**environment, "TMPDIR": scratch}


def _private(path: str, flags: int) -> int:
    """Opens a file for this user alone: what a server prints may hold secrets as long as nobody cleaned it."""
    return os.open(path, flags, 0o600)
