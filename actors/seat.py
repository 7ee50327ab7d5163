"""What an actor finds on the node where Ray has put it, and takes for itself there."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import ray

from actors.node_types import living_nodes
from actors.placement import ServerShape
from sweeper.config import StudyConfig
from sweeper.driver.holder import start_of
from sweeper.node.cpu_share import CpuShare
from sweeper.node.hardware import visible_gpu_ids, visible_hardware, visible_pci_addresses
from sweeper.records import Hardware
from sweeper.server.orphans import reap_orphans
from sweeper.server.ports import forget_blocks_of_the_dead

SCRATCH = "sweeper-actor-"


@dataclass(frozen=True)
class Seat:
    """One node's part of a server: its hardware, Ray's id and the address of the node, and its GPUs' UUIDs.

    ``cpus`` are those of its own; ``reaped`` counts processes that an earlier owner had left there.
    """

    hardware: Hardware
    node: str
    address: str
    gpus: tuple[str, ...]
    cpus: frozenset[int]
    reaped: int


class Place:
    """The life of an actor on its node: a directory, CPUs of its own, and nothing left of the dead."""

    def __init__(self, study: StudyConfig, shape: ServerShape) -> None:
        self._study = study
        self._reaped = tidy_up()
        self._scratch = tempfile.TemporaryDirectory(prefix=f"{SCRATCH}{os.getpid()}-")
        self._node = ray.get_runtime_context().get_node_id()
        self._sharers = self._sharing(shape)
        self._cpus: CpuShare | None = None

    @property
    def scratch(self) -> Path:
        return Path(self._scratch.name)

    def _sharing(self, shape: ServerShape) -> int:
        """How many servers of this study the node holds, if each is to get CPUs of its own; else 1."""
        resources = self._study.resources
        if not resources.pin_cpus or not float(resources.cpus_per_server).is_integer():
            return 1
        held = shape.on(living_nodes()[self._node])
        return max(1, min(held, resources.max_servers or held))

    def seat(self) -> Seat:
        """What is here. CPUs are taken at the first call: next to the GPUs, if these can be asked.

        Raises:
            OSError: the hardware cannot be read.
        """
        device = self._study.engine.device
        hardware = visible_hardware(device)
        if self._cpus is None:
            self._cpus = CpuShare(self._sharers, visible_pci_addresses(device))
        address = ray.util.get_node_ip_address()
        gpus = visible_gpu_ids(device)
        return Seat(hardware, self._node, address, gpus, self._cpus.cpus, self._reaped)

    def close(self) -> None:
        """Remove the actor's files."""
        self._scratch.cleanup()


def tidy_up() -> int:
    """Leave nothing on this machine of actors and servers that were killed; counts the processes that had to end."""
    _remove_scratch_of_the_dead()
    forget_blocks_of_the_dead()
    return len(reap_orphans())


def _remove_scratch_of_the_dead() -> None:
    """Directories of actors of this machine that were killed before they could remove them."""
    for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH}*"):
        pid = path.name.removeprefix(SCRATCH).split("-")[0]
        if (
            pid.isdigit() and start_of(int(pid)) is None
        ):  # a zombie, which nobody may ever wait for, is dead, too
            shutil.rmtree(path, ignore_errors=True)
