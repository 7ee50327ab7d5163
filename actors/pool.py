"""Runs trials on the servers of a cluster, and turns the loss of one into a failed trial."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from actors.node_code import tidy_nodes
from actors.ray_words import quoted, said
from actors.roster import Roster
from actors.server_group import ServerGroup
from sweeper.records import FailureClass, Hardware, TrialRecord, TrialResult, TrialState
from sweeper.server import failures
from sweeper.space import Candidate
from sweeper.study.surroundings import Glance
from sweeper.trial.order import TrialOrder, TrialPlan

INTERRUPT_S = 30.0
PHASE_S = 2.0


@dataclass(frozen=True)
class _Busy:
    group: ServerGroup
    tag: str
    candidate: Candidate


class ServerPool:
    """Servers with at most one running trial each; ``actors.roster`` says how many and where.

    Trials compare only on equal hardware: the kind with the most servers is chosen (or the one an earlier run of the
    study had), others are given back and reported. Servers that are lost, or left something behind, are replaced
    while there is work; a node that spoils trials gets no more. A context manager: leaving it ends all actors, and
    with them their servers.

    Raises:
        SweeperError: the cluster can never hold a server.
    """

    def __init__(self, plan: TrialPlan) -> None:
        self._roster = Roster(plan)
        self._running: dict[Any, _Busy] = {}

    def __enter__(self) -> ServerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.interrupt()
        if self._running:
            ray.wait(list(self._running), num_returns=len(self._running), timeout=INTERRUPT_S)
        self._roster.close()
        tidy_nodes()

    def hardware(self, kind: str = "") -> Hardware:
        """What the servers run on, once it is settled; ``kind``: the key of an earlier run's, which goes first.

        Raises:
            SweeperError: no server was placed in time.
        """
        self._roster.kinds.wished = kind
        while self._roster.kinds.chosen is None:
            self._roster.admit(1.0)
        return self._roster.kinds.chosen

    def size(self) -> int:
        """Servers that are there or still to be placed, at least 1."""
        return max(1, len(self._roster))

    def idle(self) -> list[str]:
        """Names of the servers that wait for a trial; a replaced server has a name of its own.

        A server whose node has just spoiled a trial is left out as long as another node could take that up.
        """
        self._roster.admit(0.0)
        return self._roster.idle()

    def need(self, count: int) -> None:
        """So many servers have work from here on: no more are started, until more have work."""
        self._roster.need(count)

    def dismiss(self, name: str) -> None:
        """Give an idle server's processors back: nothing is left to run on them."""
        self._roster.dismiss(name)

    def start(self, tag: str, order: TrialOrder, on: str | None = None) -> None:
        """Run a trial on an idle server, on a certain one if it is named; ``tag`` comes back with its result.

        Raises:
            KeyError: the server named is not idle, or gone.
        """
        while not self._roster.ready:
            self._roster.admit(1.0)
        group = self._roster.take(on or next(iter([*self._roster.idle(), *self._roster.ready])))
        self._running[group.actor.run_trial.remote(tag, order)] = _Busy(group, tag, order.candidate)

    def release(self, name: str) -> None:
        """Give an idle server's processors back for good; one that is gone already needs no more."""
        self._roster.release(name)

    def wait(self, timeout_s: float) -> list[tuple[str, TrialResult]]:
        """Results that came in within ``timeout_s`` seconds, at least until the first one does."""
        if not self._running:
            self._roster.admit(timeout_s)
            return []
        done, _ = ray.wait(list(self._running), num_returns=1, timeout=timeout_s)
        return [self._collect(ref) for ref in done]

    def _collect(self, ref: Any) -> tuple[str, TrialResult]:
        busy = self._running.pop(ref)
        usable = False
        try:
            result: TrialResult = ray.get(ref)
            usable = not result.leak and not _without_gpu(result)
        except RayTaskError as error:
            result = _lost(busy.candidate, FailureClass.CRASH, f"the trial raised: {said(error)}", error)
            usable = True
        except RayError as error:
            result = _lost(
                busy.candidate, FailureClass.LOST, f"the server's actor was lost: {said(error)}", error
            )
        self._roster.ended(busy.group, result, usable)
        return busy.tag, replace(result, server=busy.group.name)

    def glances(self) -> dict[str, Glance]:
        """What every busy server does right now, by tag."""
        asked = {busy.group.actor.glance.remote(): busy for busy in self._running.values()}
        answered = ray.wait(list(asked), num_returns=len(asked), timeout=PHASE_S)[0] if asked else []
        found = {busy.tag: Glance("not answering", server=busy.group.name) for busy in asked.values()}
        for ref in answered:
            busy = asked[ref]
            with contextlib.suppress(RayError):
                found[busy.tag] = replace(ray.get(ref), server=busy.group.name)
        return found

    def phases(self) -> dict[str, str]:
        """The same in words."""
        return {tag: str(glance) for tag, glance in self.glances().items()}

    def interrupt(self) -> None:
        """Ask every running trial to end early."""
        for busy in self._running.values():
            busy.group.actor.interrupt.remote()

    def notices(self) -> list[str]:
        """What a person should know of the cluster since this was asked last."""
        new, self._roster.notices = self._roster.notices, []
        return new


def _without_gpu(result: TrialResult) -> bool:
    """Its processors are not what they were; whoever is placed there next finds out whether they can be used."""
    failure = result.record.failure
    return failure is not None and failure.kind is FailureClass.GPU_LOST


def _lost(candidate: Candidate, kind: FailureClass, message: str, error: Exception) -> TrialResult:
    failure = failures.failure(kind, message, quoted(error))
    return TrialResult(
        TrialRecord(candidate.requested, candidate.effective, TrialState.FAILED, failure=failure)
    )
