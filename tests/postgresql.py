"""A PostgreSQL server of its own for tests: in a temporary directory, on a free port of the loopback interface."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import OperationalError

PASSWORD = "p@ss/w:rd%41"
PASSWORD_VARIABLE = "SWEEPER_TEST_DB_PASSWORD"


def binaries() -> Path | None:
    """Where ``initdb`` and ``postgres`` lie; None where PostgreSQL is not installed (``make postgresql``)."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[4]))
    found = shutil.which("initdb")
    return installed[-1].parent if installed else Path(found).resolve().parent if found else None


class PostgreSQL:
    """One server; ``start`` and ``stop`` as often as a test likes, ``remove`` at its end."""

    def __init__(self) -> None:
        programs = binaries()
        if programs is None:
            pytest.skip("PostgreSQL is not installed: make postgresql")
        self.programs = programs
        self.directory = Path(tempfile.mkdtemp(prefix="sweeper-postgresql-"))
        self.user = self._unprivileged()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        password = self.directory / "password"
        password.write_text(PASSWORD)
        if self.user is not None:
            for path in (self.directory, password):
                os.chown(path, self.user, -1)
        self._run(
            "initdb", "-D", self.directory / "data", "-U", "sweeper", "--auth=scram-sha-256",
            f"--pwfile={password}", "-E", "UTF8", "--no-sync",
        )  # fmt: skip
        self.server: subprocess.Popen[bytes] | None = None
        self.start()

    def _unprivileged(self) -> int | None:
        """PostgreSQL refuses to run as root; None: this process is not root."""
        if os.getuid() != 0:
            return None
        known = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
        return known.get("postgres", known["nobody"])

    def _run(self, program: str, *words: str | Path) -> None:
        command = [str(self.programs / program), *map(str, words)]
        done = subprocess.run(command, user=self.user, cwd="/", capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        options = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.directory),
            "fsync": "off",
        }
        command = [str(self.programs / "postgres"), "-D", str(self.directory / "data")]
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        log = open(self.directory / "log", "ab")  # noqa: SIM115
        self.server = subprocess.Popen(
            command, user=self.user, cwd="/", stdout=log, stderr=log, start_new_session=True
        )
        log.close()
        deadline = time.monotonic() + 30
        while True:
            try:
                self.ask("SELECT 1", database="postgres")
                return
            except OperationalError:
                assert self.server.poll() is None, (self.directory / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def stop(self) -> None:
        """As ``pg_ctl stop -m fast`` does: every connection is cut."""
        assert self.server is not None
        self.server.send_signal(signal.SIGINT)
        self.server.wait(30)

    def remove(self) -> None:
        if self.server is not None and self.server.poll() is None:
            self.stop()
        shutil.rmtree(self.directory)

    def url(self, database: str) -> URL:
        return URL.create("postgresql+psycopg", "sweeper", PASSWORD, "127.0.0.1", self.port, database)

    def study_file_url(self, database: str) -> str:
        """As it stands in a study file: the password comes from the environment."""
        return f"postgresql+psycopg://sweeper:${{{PASSWORD_VARIABLE}}}@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> URL:
        """A new, empty database."""
        self.ask(f"CREATE DATABASE {database}", database="postgres")
        return self.url(database)

    def ask(self, statement: str, database: str) -> list[tuple[object, ...]]:
        engine = create_engine(self.url(database), isolation_level="AUTOCOMMIT")
        try:
            with engine.connect() as connection:
                done = connection.execute(text(statement))
                return [tuple(row) for row in done] if done.returns_rows else []
        finally:
            engine.dispose()
