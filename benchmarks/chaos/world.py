"""The world that chaos reigns in: a study for the stand-in server, a cluster of raylets, and all their processes."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import psutil
import yaml

from tests.checkpoints import write_eagle3

REPOSITORY = Path(__file__).parents[2]
FAKE_ENGINE = REPOSITORY / "tests" / "fake_engine"
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
NODES = 2
STARTS = 12
IMPORT_S = 4.0
SERVERS = 2
STEPS = range(1, 15)
DRAFTS = ("a", "b")
BROKEN_DRAFT, BROKEN_CLASS = "broken", "MEASUREMENT"
NAME = "chaos"


def adopt_orphans() -> None:
    """From now on every process that descends from this one stays its descendant, whoever dies in between.

    This one ends in order when its own parent dies, or somebody asks it to.
    """
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for option, value in ((PR_SET_CHILD_SUBREAPER, 1), (PR_SET_PDEATHSIG, signal.SIGTERM)):
        if prctl(option, int(value), 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def slowness() -> float:
    """How many times longer than on a quiet machine it takes here and now to import what a driver imports."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import ray, optuna, pandas, sweeper.study.sweep"], check=True)
    return max(1.0, (time.monotonic() - began) / IMPORT_S)


def write_study(root: Path) -> Path:
    """Thirty configs, two of which no server can serve."""
    (root / "target").mkdir()
    (root / "target" / "config.json").write_text("{}")
    for draft in DRAFTS:
        write_eagle3(root / f"draft_{draft}")
    write_eagle3(
        root / f"draft_{BROKEN_DRAFT}", rope_theta=1e4
    )  # no sibling: it never runs in another's server
    rows = [{"id": f"p{i}", "prompt": f"prompt number {i}"} for i in range(80)]
    (root / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    faults = {f"draft_{BROKEN_DRAFT}": "error_in_stream"}
    study = {
        "study": NAME,
        "engine": {
            "model": "target",
            "device": "cpu",
            "start_timeout_s": 60,
            "env": {"PYTHONPATH": str(FAKE_ENGINE), "FAKE_FAULTS": json.dumps(faults)},
        },
        "space": {
            "drafts": {d: {"path": f"draft_{d}"} for d in (*DRAFTS, BROKEN_DRAFT)},
            "grids": [
                {"algorithm": "EAGLE3", "drafts": list(DRAFTS), "num_steps": list(STEPS), "topk": 1},
                {"algorithm": "EAGLE3", "drafts": [BROKEN_DRAFT], "num_steps": [1, 2], "topk": 1},
            ],
        },
        "workload": {"prompts": "prompts.jsonl", "concurrency": [1, 4], "max_new_tokens": 32},
        "measurement": {"min_requests": 8, "rounds": 2, "max_requests": 16, "warmup_tolerance": 9},
        "search": {"sampler": "random", "prune": False},
        "confirmation": {"finalists": 1, "repeats": 1},
        # Rates mean nothing while processes die and start on the same two cores.
        "baseline": {"cache_dir": str(root / "baselines"), "tolerance": 0.99, "laps": 1},
        # A node whose actors are killed on purpose is not a bad one.
        "resources": {"cordon_after": 1000, "max_servers": SERVERS},
        "runs_dir": str(root / "runs"),
    }
    path = root / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    return path


class World:
    """A head that holds no server and ``NODES`` raylets, all of whose processes descend from this one.

    ``temp`` is the directory for the temporary files of all of them but Ray's own.
    """

    def __init__(self, root: Path) -> None:
        self.root, self.temp = root, root / "t"
        self.temp.mkdir()
        (root / "r").mkdir()
        os.environ |= {
            "TMPDIR": str(self.temp),
            "RAY_TMPDIR": str(root / "r"),
            "PYTHONPATH": str(REPOSITORY),
            "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
            "RAY_raylet_start_wait_time_s": "40",
            "RAY_worker_register_timeout_seconds": "300",
            "COLUMNS": "200",
        }
        adopt_orphans()
        self.cluster = _patiently(_head)
        for _ in range(NODES):
            self.add_node()

    def add_node(self) -> None:
        _patiently(lambda: self.cluster.add_node(num_cpus=1, object_store_memory=80_000_000))

    def raylet(self, node: Any) -> psutil.Process:
        return psutil.Process(node.all_processes["raylet"][0].process.pid)

    def replace(self, node: Any) -> None:
        """Another node in the place of one whose raylet is dead."""
        self.cluster.remove_node(node, allow_graceful=False)
        self.add_node()

    def start_driver(self, study: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "sweeper", "run", str(study), "--ray-address", self.cluster.address]
        return subprocess.Popen(command, cwd=REPOSITORY, stdout=output, stderr=subprocess.STDOUT)

    def close(self) -> None:
        self.cluster.shutdown()


def _head() -> Any:
    from ray.cluster_utils import Cluster

    return Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})


def _patiently(start: Callable[[], Any]) -> Any:
    """On a busy machine Ray gives up waiting for its own processes."""
    for _ in range(STARTS - 1):
        try:
            return start()
        except Exception as error:  # Ray raises just that
            print(f"Ray did not start, once more: {error}", file=sys.stderr)
    return start()


@contextmanager
def world(root: Path) -> Iterator[World]:
    found = World(root)
    try:
        yield found
    finally:
        found.close()
        for process in descendants():
            with suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)


def descendants() -> list[psutil.Process]:
    """Living processes that this one brought into the world."""
    alive = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                alive.append(process)
    return alive


def words_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def is_server(process: psutil.Process) -> bool:
    return words_of(process)[1:3] == ["-m", "sglang.launch_server"]


def is_actor(process: psutil.Process) -> bool:
    return "".join(words_of(process)[:1]).startswith("ray::ServerActor")


def configs_of(server: psutil.Process) -> tuple[str, ...]:
    """The effective configs that a server may be running, as the study writes them; "" without speculation.

    One that was launched with a draft may have got its sibling's weights since.
    """
    words = words_of(server)

    def after(flag: str) -> str:
        return words[words.index(flag) + 1] if flag in words else ""

    draft = Path(after("--speculative-draft-model-path")).name.removeprefix("draft_")
    steps, topk = after("--speculative-num-steps"), after("--speculative-eagle-topk")
    tokens = after("--speculative-num-draft-tokens")
    drafts = DRAFTS if draft in DRAFTS else (draft,)
    return tuple(f"EAGLE3 {name} {steps}/{topk}/{tokens}" for name in drafts) if draft else ("",)


def port_of(server: psutil.Process) -> int:
    words = words_of(server)
    return int(words[words.index("--port") + 1]) if "--port" in words[:-1] else 0


def until_gone(kind: Any, timeout_s: float) -> list[psutil.Process]:
    """Descendants of a kind that are still there after so many seconds."""
    deadline = time.monotonic() + timeout_s
    while found := [process for process in descendants() if kind(process)]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return found
