"""Kills with SIGKILL, at random, and keeps book of whom it hit."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import psutil

from benchmarks.chaos.evidence import ACTOR, DRIVER, RAYLET, SERVER, VICTIMS, Strike
from benchmarks.chaos.world import World, configs_of, descendants, is_actor, is_server, port_of, slowness

WEIGHTS = {SERVER: 5, ACTOR: 3, RAYLET: 2, DRIVER: 2}
PAUSE_S = (3.0, 9.0)
"""Between two kills, where nobody else uses the machine; longer by as much as it is slower."""
REPRIEVE_S = (5.0, 60.0)
"""How long a driver lives at least: some are killed while they start, others when they have got somewhere."""

LOOK_S = 0.3
HOPELESS = 5
"""Drivers that ended by themselves before the study is given up."""
AWAY_S = 1.5
"""How long a node stays away before another one takes its place."""


class Striker:
    """Drives the study through its life: strikes every few seconds, and starts the driver again whenever it ends.

    ``strikes``, ``ports`` (of every server seen), ``given_up`` and ``outputs`` are what it saw.
    """

    def __init__(self, world: World, study: Path, seed: int) -> None:
        self.world, self.study = world, study
        self.random = random.Random(seed)
        self.slowness = slowness()
        self.strikes: list[Strike] = []
        self.ports: set[int] = set()
        self.given_up: list[str] = []
        self.outputs: list[Path] = []
        self._struck_driver = False
        self._driver = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.outputs.append(self.world.root / f"driver-{len(self.outputs)}.log")
        self._struck_driver = False
        self._reprieve_until = self._in(REPRIEVE_S)
        with open(self.outputs[-1], "wb") as output:
            return self.world.start_driver(self.study, output)

    def until_done(self, limit_s: float) -> None:
        """Until a driver ends well.

        Raises:
            TimeoutError: none did within ``limit_s`` seconds, or too many gave up.
        """
        deadline = time.monotonic() + limit_s
        pause_until = self._in(PAUSE_S)
        while True:
            code = self._driver.poll()
            if code == 0:
                return
            if code is not None:
                if not self._struck_driver:
                    self.given_up.append(f"exit code {code}: {self._last_words()}")
                if len(self.given_up) >= HOPELESS:
                    raise TimeoutError(f"drivers give up: {self._last_words()}")
                self._driver = self._start()
            if time.monotonic() > deadline:
                self._driver.kill()
                raise TimeoutError(f"the study did not end within {limit_s:.0f} s: {self._last_words()}")
            self._look()
            if time.monotonic() > pause_until:
                self._strike()
                pause_until = self._in(PAUSE_S)
            time.sleep(LOOK_S)

    def _in(self, seconds: tuple[float, float]) -> float:
        return time.monotonic() + self.slowness * self.random.uniform(*seconds)

    def _last_words(self) -> str:
        lines = self.outputs[-1].read_text(errors="replace").strip().splitlines()
        return " ".join(lines[-1:])[:300]

    def _look(self) -> list[psutil.Process]:
        """Note which ports are in use; the servers that run."""
        found = [process for process in descendants() if is_server(process)]
        self.ports |= {port for server in found if (port := port_of(server))}
        return found

    def _strike(self) -> None:
        spared = {DRIVER} if time.monotonic() < self._reprieve_until else set()
        names = [name for name in VICTIMS if name not in spared]
        victim = self.random.choices(names, [WEIGHTS[name] for name in names])[0]
        if victim == DRIVER:
            self._note(DRIVER, ())
            self._struck_driver = True
            self._driver.kill()
            self._driver.wait()
        elif victim == RAYLET:
            node = self.random.choice(sorted(self.world.cluster.worker_nodes, key=lambda n: n.node_id))
            raylet = self.world.raylet(node)
            self._note(RAYLET, raylet.children(recursive=True))
            raylet.send_signal(signal.SIGKILL)
            time.sleep(AWAY_S)
            self.world.replace(node)
        else:
            kind = is_server if victim == SERVER else is_actor
            found = sorted((p for p in descendants() if kind(p)), key=lambda p: p.pid)
            if found:
                process = self.random.choice(found)
                with suppress(psutil.Error):
                    self._note(victim, [process, *process.children(recursive=True)])
                    process.send_signal(signal.SIGKILL)

    def _note(self, victim: str, dying: Iterable[psutil.Process]) -> None:
        configs = tuple(config for process in dying if is_server(process) for config in configs_of(process))
        self.strikes.append(Strike(datetime.now(), victim, configs))
