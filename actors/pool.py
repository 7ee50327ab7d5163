"""Keeps every server actor busy, and turns the loss of one into a failed trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from actors.server_actor import ServerActor
from sweeper.errors import SweeperError
from sweeper.records import Failure, FailureClass, Hardware, TrialRecord, TrialResult, TrialState
from sweeper.space import Candidate
from sweeper.trial import TrialOrder, TrialPlan

PLACEMENT_TIMEOUT_S = 120.0


@dataclass
class _Busy:
    actor: int
    tag: str
    candidate: Candidate


class ServerPool:
    """As many server actors as fit (or as asked for), each with at most one running trial.

    A context manager: leaving it ends all actors, and with them their servers.
    """

    def __init__(self, plan: TrialPlan) -> None:
        study = plan.study
        self._gpus, self._cpus = study.gpus_per_server, study.resources.cpus_per_server
        self._plan = ray.put(plan)
        self._device = study.engine.device
        count = self._fitting()
        if study.resources.max_servers:
            count = min(count, study.resources.max_servers)
        self._actors = [self._create() for _ in range(count)]
        self._running: dict[Any, _Busy] = {}

    def __enter__(self) -> ServerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.interrupt()
        ray.wait(list(self._running), num_returns=len(self._running), timeout=30) if self._running else None
        for actor in self._actors:
            ray.kill(actor)

    def _fitting(self) -> int:
        """How many servers the cluster's nodes hold, each server within one node.

        Raises:
            SweeperError: not a single one fits; the message says what the nodes have.
        """
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        wanted = {"GPU": self._gpus, "CPU": self._cpus}
        count = 0
        for node in nodes:
            count += min((int(node.get(name, 0) // need) for name, need in wanted.items() if need), default=1)
        if not count:
            have = "; ".join(f"{n.get('GPU', 0):g} GPUs and {n.get('CPU', 0):g} CPUs" for n in nodes)
            raise SweeperError(
                f"resources: a server needs {self._gpus:g} GPUs and {self._cpus:g} CPUs on one node, "
                f"but the cluster's nodes have {have}"
            )
        return count

    def _create(self) -> Any:
        remote = ray.remote(ServerActor)
        return remote.options(num_gpus=self._gpus, num_cpus=self._cpus, max_concurrency=2).remote(self._plan)

    def hardware(self) -> Hardware:
        """What the first server runs on.

        Raises:
            SweeperError: no actor came up in time.
        """
        try:
            hardware: Hardware = ray.get(self._actors[0].hardware.remote(), timeout=PLACEMENT_TIMEOUT_S)
            return hardware
        except GetTimeoutError:
            raise SweeperError(
                f"no server actor was placed within {PLACEMENT_TIMEOUT_S:.0f} s; is the cluster busy with other jobs?"
            ) from None
        except RayTaskError as error:
            raise SweeperError(f"a server's hardware cannot be read: {error.cause}") from None

    def size(self) -> int:
        return len(self._actors)

    def idle(self) -> int:
        return len(self._actors) - len(self._running)

    def start(self, tag: str, order: TrialOrder) -> None:
        """Run a trial on an idle server; ``tag`` comes back with its result."""
        busy = {b.actor for b in self._running.values()}
        actor = next(i for i in range(len(self._actors)) if i not in busy)
        ref = self._actors[actor].run_trial.remote(tag, order)
        self._running[ref] = _Busy(actor, tag, order.candidate)

    def wait(self, timeout_s: float) -> list[tuple[str, TrialResult]]:
        """Results that came in within ``timeout_s`` seconds, at least until the first one does."""
        if not self._running:
            return []
        done, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout_s)
        return [self._collect(ref) for ref in done]

    def _collect(self, ref: Any) -> tuple[str, TrialResult]:
        busy = self._running.pop(ref)
        try:
            return busy.tag, ray.get(ref)
        except RayActorError as error:
            self._actors[busy.actor] = self._create()
            return busy.tag, _lost(busy.candidate, FailureClass.LOST, f"the server's actor died: {error}")
        except RayTaskError as error:
            return busy.tag, _lost(busy.candidate, FailureClass.CRASH, f"the trial raised: {error}")

    def phases(self) -> dict[str, str]:
        """What every busy server does right now, by tag."""
        asked = {b.tag: self._actors[b.actor].phase.remote() for b in self._running.values()}
        phases = {}
        for tag, ref in asked.items():
            try:
                phases[tag] = ray.get(ref, timeout=2)
            except (GetTimeoutError, RayActorError):
                phases[tag] = "not answering"
        return phases

    def interrupt(self) -> None:
        """Ask every running trial to end early."""
        for busy in self._running.values():
            self._actors[busy.actor].interrupt.remote()


def _lost(candidate: Candidate, kind: FailureClass, message: str) -> TrialResult:
    failure = Failure(kind, message.strip().splitlines()[0][:500], tuple(message.splitlines()[-20:]))
    return TrialResult(
        TrialRecord(candidate.requested, candidate.effective, TrialState.FAILED, failure=failure)
    )
