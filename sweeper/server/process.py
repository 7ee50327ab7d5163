"""Owns the processes of one SGLang server: start, wait until it serves, stop, leave nothing behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

import psutil

from sweeper.server import guardian
from sweeper.server.client import ServerClient, ServerUnreachableError
from sweeper.server.command import Address

TERM_GRACE_S = 20.0
KILL_GRACE_S = 10.0
POLL_S = 0.25


class ServerDiedError(Exception):
    """The server ended or never served; ``log`` is what it printed."""

    def __init__(self, message: str, log: str) -> None:
        self.log = log
        super().__init__(message)


class StartTimeoutError(ServerDiedError):
    """The server did not serve before its deadline."""


class LeakError(Exception):
    """Processes of a stopped server are still there."""


def free_address() -> Address:
    """A port outside the ephemeral range that nobody listens on now, with a fresh key.

    SGLang binds its port only after loading, and NCCL takes random ephemeral ports: hence the low range.
    """
    for _ in range(200):
        port = 10_000 + secrets.randbelow(12_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return Address(port, secrets.token_hex(16))
    raise OSError("no free port between 10000 and 22000")


class ServerProcess:
    """A running server as a context manager; leaving it ends every process of the server's group.

    The server runs under a guardian in a session of its own, so that it dies with its owner even when the
    owner is killed with SIGKILL, and so that one signal reaches all of its processes.
    """

    def __init__(
        self, command: list[str], environment: Mapping[str, str], address: Address, log: Path
    ) -> None:
        self.address = address
        self.client = ServerClient(address)
        self._log_path = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, guardian.__file__, *command],
                env=dict(environment),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

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
        return self._process.poll() is None

    def log(self) -> str:
        """What the server printed so far, without its API key."""
        return self._log_path.read_text("utf-8", "replace").replace(self.address.api_key, "***")

    def raise_if_dead(self) -> None:
        if not self.alive:
            raise ServerDiedError(f"the server exited with code {self._process.returncode}", self.log())

    def wait_until_ready(self, timeout_s: float, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Block until *this* server serves: it alone knows the launch's key, and says it is ready.

        Raises:
            ServerDiedError: it exited first, or another server answers on its port.
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
                    return
            except ServerUnreachableError:
                pass
            time.sleep(POLL_S)
        raise StartTimeoutError(f"the server did not serve within {timeout_s:.0f} s", self.log())

    def stop(self) -> None:
        """End the server: TERM to the group, then KILL, then wait until no process of the group is left.

        Raises:
            LeakError: a process of the group survived SIGKILL.
        """
        self._signal(signal.SIGTERM)
        if not self._gone(TERM_GRACE_S):
            self._signal(signal.SIGKILL)
            if not self._gone(KILL_GRACE_S):
                raise LeakError(f"processes of group {self.pid} survived SIGKILL: {self._members()}")
        if self._process.stdin:
            self._process.stdin.close()

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

    def _members(self) -> list[int]:
        return session_members(self.pid)


def session_members(session: int) -> list[int]:
    """Live (not zombie) processes of a session."""
    members = []
    for process in psutil.process_iter(["pid", "status"]):
        try:
            if os.getsid(process.pid) == session and process.info["status"] != psutil.STATUS_ZOMBIE:
                members.append(process.pid)
        except ProcessLookupError:
            continue
    return members
