"""A real Ray cluster on loopback, job server included, that asks for a token as Ray's clusters do."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import requests

RAY = str(Path(sys.executable).with_name("ray"))


@dataclass(frozen=True)
class RayCluster:
    """``address`` is the job server's, ``gcs`` that for drivers.

    ``homes`` are where the nodes keep data: the head's and the far one's.
    """

    address: str
    gcs: str
    homes: dict[str, Path]
    environment: dict[str, str]


@contextmanager
def ray_cluster(cpus: int = 2) -> Iterator[RayCluster]:
    """A head, and a node "far" without CPUs, each with a data directory of its own as two machines have."""
    root = Path(tempfile.mkdtemp(prefix="sw-ray-", dir="/tmp"))  # sockets need a short path
    gcs, dashboard = free_port(), free_port()
    homes = {name: root / name for name in ("head", "far")}
    nodes: list[subprocess.Popen[bytes]] = []
    token = root / "token"
    token.write_text(secrets.token_hex(32))
    environment = {**_plain_environment(), "RAY_AUTH_TOKEN_PATH": str(token)}
    try:
        head = [
            f"--port={gcs}",
            f"--dashboard-port={dashboard}",
            f"--num-cpus={cpus}",
            f"--temp-dir={root}/t",
        ]
        head += ["--head", "--include-dashboard=true", f"--ray-client-server-port={free_port()}"]
        nodes.append(_start(head, homes["head"], environment))
        address = f"http://127.0.0.1:{dashboard}"
        _wait_for(f"{address}/api/version", nodes[0])
        far = [f"--address=127.0.0.1:{gcs}", "--num-cpus=0", f"--resources={json.dumps({'far': 1})}"]
        far += [
            f"--temp-dir={root}/t"
        ]  # the head's: a job agent reads logs from the first node of its machine
        nodes.append(_start(far, homes["far"], environment))
        yield RayCluster(
            address, f"127.0.0.1:{gcs}", homes, {**environment, "RAY_API_SERVER_ADDRESS": address}
        )
    finally:
        for node in reversed(nodes):
            _end(node)
        shutil.rmtree(root, ignore_errors=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _plain_environment() -> dict[str, str]:
    """The tests' own, with the interpreter's directory first in PATH and nothing that names another Ray."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    return {
        **kept,
        "PATH": f"{Path(sys.executable).parent}:{kept.get('PATH', '')}",
        "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
        "RAY_worker_niceness": "5",
        "COLUMNS": "160",
    }


def _start(words: list[str], home: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    home.mkdir()
    return subprocess.Popen(
        [
            RAY,
            "start",
            "--block",
            "--node-ip-address=127.0.0.1",
            "--disable-usage-stats",
            "--object-store-memory=100000000",
            f"--dashboard-agent-listen-port={free_port()}",
            f"--metrics-export-port={free_port()}",
            *words,
        ],
        env={
            **environment,
            "RAY_AUTH_MODE": "token",
            "XDG_DATA_HOME": str(home),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        },
        stdout=(home / "ray.log").open("wb"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _wait_for(url: str, node: subprocess.Popen[bytes], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        assert node.poll() is None, "ray start ended"
        assert time.monotonic() < deadline, f"{url} does not answer"
        try:
            if requests.get(url, timeout=5).status_code == 401:  # it is there, and asks for the token
                return
        except requests.RequestException:
            pass
        time.sleep(0.5)


def _end(node: subprocess.Popen[bytes]) -> None:
    """End a node and every process that descends from it; workers have sessions of their own."""
    try:
        family = psutil.Process(node.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    node.send_signal(signal.SIGTERM)
    try:
        node.wait(15)
    except subprocess.TimeoutExpired:
        node.kill()
        node.wait()
    for process in psutil.wait_procs(family, timeout=10)[1]:
        process.kill()
