"""One Ray actor holds the GPUs and CPUs of one SGLang server and runs one trial at a time on them.

Of a server that spans several nodes it holds rank 0, and talks to the actors of the other ranks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import ray

from actors.placement import ServerShape
from actors.rank_actor import RayRank
from actors.seat import Place, Seat
from sweeper.node.hardware import together
from sweeper.records import TrialResult
from sweeper.server.gpu_memory import gpu_memory_used, visible_gpus
from sweeper.server.ranks import ONE_NODE, Ranks
from sweeper.study.surroundings import Glance
from sweeper.trial.kept import Keeper
from sweeper.trial.order import TrialOrder, TrialPlan, Watch
from sweeper.trial.run import run_trial

THREADS = 2
"""``run_trial`` blocks for minutes; the other one answers ``glance`` and takes ``interrupt``."""


class ServerActor:
    """The class behind the Ray actor; ``actors.server_group`` reserves its resources and creates it."""

    def __init__(self, plan: TrialPlan, shape: ServerShape, others: Sequence[Any] = ()) -> None:
        self._plan = plan
        self._others = tuple(others)
        self._ranks = ONE_NODE
        self._phase = "idle"
        self._rate: float | None = None
        self._stop = threading.Event()
        self._leak: str | None = None
        self._place = Place(plan.study, shape)
        self._keeper = Keeper()

    def seats(self) -> tuple[Seat, ...]:
        """What every node of the server has, rank 0's first; answered once all are there.

        Raises:
            OSError: the hardware of a node cannot be read.
        """
        own = self._place.seat()
        seats = (own, *ray.get([other.seat.remote() for other in self._others]))
        if self._others:
            ranks = tuple(
                RayRank(actor, number, seat.hardware.host)
                for number, (actor, seat) in enumerate(zip(self._others, seats[1:], strict=True), start=1)
            )
            self._ranks = Ranks(own.address, ranks, together([seat.hardware for seat in seats]))
        return seats

    def run_trial(self, tag: str, order: TrialOrder) -> TrialResult:
        """Measure a candidate; every outcome but the actor's own death is a result.

        A server that it leaves running for the next trial ends with that, or with ``close``.

        Raises:
            RuntimeError: an earlier server left something behind on this actor's processors.
        """
        if self._leak:
            raise RuntimeError(f"this actor takes no further trial: {self._leak}")
        watch = Watch(self._set_phase, self._stop.is_set, self._ranks, self._set_rate)
        log = self._place.scratch / f"{tag}.log"
        try:
            result = run_trial(self._plan, order, log, watch, self._keeper)
            self._leak = result.leak
            return result
        finally:
            if not (self._keeper.kept and self._keeper.kept.log == log):
                log.unlink(missing_ok=True)

    def close(self) -> None:
        """End what still runs and remove the actor's files, before it is killed."""
        self._stop.set()
        self._keeper.end(at_once=True)
        self._place.close()

    def glance(self) -> Glance:
        """What the server does right now, with the memory of its GPUs on this node."""
        used = gpu_memory_used(visible_gpus(os.environ))
        gib = sum(used.values()) / 2**30 if used else None
        return Glance(self._phase, tok_s=self._rate, gpu_gib=gib)

    def interrupt(self) -> None:
        """Make the running trial end early, its server stopped, as INTERRUPTED."""
        self._stop.set()

    def _set_phase(self, text: str) -> None:
        self._phase, self._rate = text, None

    def _set_rate(self, tokens_per_second: float) -> None:
        self._rate = tokens_per_second
