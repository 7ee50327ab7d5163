"""Keeps every server actor busy, and turns the loss of one into a failed trial."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from actors.cluster import servers_that_fit
from actors.server_actor import ServerActor
from sweeper.errors import SweeperError
from sweeper.records import FailureClass, Hardware, TrialRecord, TrialResult, TrialState
from sweeper.server import failures
from sweeper.space import Candidate
from sweeper.trial_order import TrialOrder, TrialPlan

PLACEMENT_TIMEOUT_S = 300.0
INTERRUPT_S = 30.0
CLOSE_S = 5.0


@dataclass
class _Busy:
    name: str
    actor: Any
    tag: str
    candidate: Candidate


class ServerPool:
    """As many server actors as fit (or as asked for), each with at most one running trial.

    ==========  =================================================================
    an actor    means
    ==========  =================================================================
    pending     Ray has not placed it yet; its answer to ``hardware`` is awaited
    ready       placed, on the hardware of the first one that was
    busy        ready, and a trial runs on it
    ==========  =================================================================

    Trials compare only on equal hardware: an actor that lands on another kind is released. An actor whose server
    left something behind is replaced. A context
    manager: leaving it ends all actors, and with them their servers.
    """

    def __init__(self, plan: TrialPlan) -> None:
        study = plan.study
        self._gpus, self._cpus = study.gpus_per_server, study.resources.cpus_per_server
        self._plan = ray.put(plan)
        self._pending: dict[Any, Any] = {}
        self._ready: dict[str, Any] = {}
        self._placed = 0
        self._running: dict[Any, _Busy] = {}
        self._hardware: Hardware | None = None
        self._deserted_since = time.monotonic()
        count = servers_that_fit(study)
        for _ in range(min(count, study.resources.max_servers or count)):
            self._create()

    def __enter__(self) -> ServerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.interrupt()
        if self._running:
            ray.wait(list(self._running), num_returns=len(self._running), timeout=INTERRUPT_S)
        there = [*self._ready.values(), *(busy.actor for busy in self._running.values())]
        closing = [actor.close.remote() for actor in there]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
        for actor in [*there, *self._pending.values()]:
            ray.kill(actor)

    def _create(self) -> None:
        remote: Any = ray.remote(ServerActor)
        options = {"num_gpus": self._gpus, "num_cpus": self._cpus, "max_concurrency": 2}
        actor = remote.options(**options).remote(self._plan)
        self._pending[actor.hardware.remote()] = actor

    def _admit(self, timeout_s: float) -> None:
        """Take in the actors that Ray has placed; release those on other hardware than the first one's.

        Raises:
            SweeperError: the hardware cannot be read, or for PLACEMENT_TIMEOUT_S not one actor was there.
        """
        placed = ray.wait(list(self._pending), num_returns=1, timeout=timeout_s)[0] if self._pending else []
        if placed:  # and all others that are there
            placed = ray.wait(list(self._pending), num_returns=len(self._pending), timeout=0)[0]
        for ref in placed:
            actor = self._pending.pop(ref)
            try:
                hardware: Hardware = ray.get(ref)
            except RayTaskError as error:
                raise SweeperError(f"a server's hardware cannot be read: {error.cause}") from None
            except RayError:
                self._create()
                continue
            self._hardware = self._hardware or hardware
            if hardware.key == self._hardware.key:
                self._placed += 1
                self._ready[f"{hardware.host}-{self._placed}"] = actor
            else:
                ray.kill(actor)
        if self._ready or self._running:
            self._deserted_since = time.monotonic()
        elif time.monotonic() - self._deserted_since > PLACEMENT_TIMEOUT_S:
            raise SweeperError(
                f"no server actor could be placed for {PLACEMENT_TIMEOUT_S:.0f} s: each needs {self._gpus:g} GPUs and "
                f"{self._cpus:g} CPUs on one node; is the cluster busy with other jobs? See: ray status"
            )

    def hardware(self) -> Hardware:
        """What the servers run on, once the first one is placed.

        Raises:
            SweeperError: none was placed in time.
        """
        while self._hardware is None:
            self._admit(1.0)
        return self._hardware

    def size(self) -> int:
        """Servers that are there or still to be placed, at least 1."""
        return max(1, len(self._pending) + len(self._ready) + len(self._running))

    def idle(self) -> list[str]:
        """Names of the servers that wait for a trial; a replaced actor has a name of its own."""
        self._admit(0.0)
        return list(self._ready)

    def start(self, tag: str, order: TrialOrder, on: str | None = None) -> None:
        """Run a trial on an idle server, on a certain one if it is named; ``tag`` comes back with its result.

        Raises:
            KeyError: the server named is not idle, or gone.
        """
        while not self._ready:
            self._admit(1.0)
        name = on or next(iter(self._ready))
        actor = self._ready.pop(name)
        self._running[actor.run_trial.remote(tag, order)] = _Busy(name, actor, tag, order.candidate)

    def release(self, name: str) -> None:
        """Give an idle server's processors back for good; one that is gone already needs no more."""
        actor = self._ready.pop(name, None)
        if actor is not None:
            ray.wait([actor.close.remote()], timeout=CLOSE_S)
            ray.kill(actor)

    def wait(self, timeout_s: float) -> list[tuple[str, TrialResult]]:
        """Results that came in within ``timeout_s`` seconds, at least until the first one does."""
        if not self._running:
            self._admit(timeout_s)
            return []
        done, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout_s)
        return [self._collect(ref) for ref in done]

    def _collect(self, ref: Any) -> tuple[str, TrialResult]:
        busy = self._running.pop(ref)
        try:
            result: TrialResult = ray.get(ref)
        except RayTaskError as error:
            self._ready[busy.name] = busy.actor
            result = _lost(busy.candidate, FailureClass.CRASH, f"the trial raised: {error.cause}")
            return busy.tag, replace(result, server=busy.name)
        except RayError as error:
            ray.kill(busy.actor)  # it may be alive but out of reach, with its server on the GPUs
            self._create()
            result = _lost(busy.candidate, FailureClass.LOST, f"the server's actor was lost: {error}")
            return busy.tag, replace(result, server=busy.name)
        if result.leak:
            ray.kill(busy.actor)
            self._create()
        else:
            self._ready[busy.name] = busy.actor
        return busy.tag, replace(result, server=busy.name)

    def phases(self) -> dict[str, str]:
        """What every busy server does right now, by tag."""
        asked = {b.tag: b.actor.phase.remote() for b in self._running.values()}
        phases = {}
        for tag, ref in asked.items():
            try:
                phases[tag] = ray.get(ref, timeout=2)
            except RayError:
                phases[tag] = "not answering"
        return phases

    def interrupt(self) -> None:
        """Ask every running trial to end early."""
        for busy in self._running.values():
            busy.actor.interrupt.remote()


def _lost(candidate: Candidate, kind: FailureClass, message: str) -> TrialResult:
    failure = failures.failure(kind, message.strip().splitlines()[0][:500], message)
    return TrialResult(
        TrialRecord(candidate.requested, candidate.effective, TrialState.FAILED, failure=failure)
    )
