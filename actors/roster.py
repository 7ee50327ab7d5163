"""The servers of a pool: asked for where nodes are, admitted when Ray has placed them, given back when of no use."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from actors.kinds import Kinds
from actors.node_health import NodeHealth
from actors.node_types import living_nodes, patience_s
from actors.placement import impossible, server_shape, servers_on
from actors.ray_words import said
from actors.server_group import ServerGroup, close, shared_gpu
from sweeper.errors import SweeperError
from sweeper.records import FailureClass, TrialResult
from sweeper.trial.order import TrialPlan

PLACEMENT_TIMEOUT_S = 300.0
LOOK_S = 2.0
"""Between two looks at the cluster's nodes."""


class Roster:
    """Follows the cluster: as many servers as fit, as asked for, or as have work.

    ==========  =====================================================================
    a server    means
    ==========  =====================================================================
    pending     Ray has not placed all of it yet; it shows as demand
    placed      it is there, but the kind of hardware is not chosen yet
    ready       on the chosen kind, and idle
    busy        a trial runs on it
    ==========  =====================================================================

    ``notices`` are for a person.

    Raises:
        SweeperError: no node of the cluster can hold a server, now or later.
    """

    def __init__(self, plan: TrialPlan) -> None:
        self._study = plan.study
        self._shape = server_shape(plan.study, plan.setup.nodes)
        self._plan = ray.put(plan)
        self._patience_s = patience_s(plan.study)
        self.health = NodeHealth(plan.study.resources.cordon_after)
        self.pending: dict[Any, ServerGroup] = {}
        self.placed: list[ServerGroup] = []
        self.ready: dict[str, ServerGroup] = {}
        self.busy: list[ServerGroup] = []
        self.notices: list[str] = []
        self.kinds = Kinds()
        self._needed: int | None = None
        self._given_back = 0
        self._named = 0
        self._began = False
        self._looked_at = 0.0
        self._deserted_since = time.monotonic()
        nodes = list(living_nodes().values())
        if not self._patience_s and not servers_on(self._shape, nodes):
            raise impossible(plan.study, nodes)
        self._follow_the_cluster()

    def __len__(self) -> int:
        return len(self.pending) + len(self._there())

    def _there(self) -> list[ServerGroup]:
        return [*self.placed, *self.ready.values(), *self.busy]

    def close(self) -> None:
        """Give everything back."""
        close(self._there())
        for group in self.pending.values():
            group.kill()

    # What there should be, and what there is

    def _usable(self, nodes: Iterable[str]) -> list[str]:
        return [n for n in nodes if n not in self.health.cordoned and n not in self.kinds.others]

    def _wanted(self) -> int:
        """Servers that there should be: those that fit, and one more where Ray may start nodes for it."""
        nodes = living_nodes()
        fit = servers_on(self._shape, [nodes[n] for n in self._usable(nodes)])
        limits = [fit - self._given_back + (1 if self._patience_s else 0)]
        limits += [n for n in (self._study.resources.max_servers, self._needed) if n is not None]
        return max(0, min(limits))

    def _follow_the_cluster(self) -> None:
        """Ask for servers where nodes have come, and forget idle ones whose nodes are gone."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        nodes = living_nodes().keys()
        for name, group in list(self.ready.items()):
            if not group.nodes() <= nodes:
                self.ready.pop(name).kill()
                self.notices.append(f"server {name} was idle when its node was lost")
        wanted = self._wanted()
        while len(self) < wanted:
            avoid = {*self.health.cordoned, *self.kinds.others} & nodes
            group = ServerGroup(self._plan, self._shape, avoid)
            self.pending[group.placed] = group
        for ref in list(self.pending)[: max(0, len(self) - wanted)]:
            self.pending.pop(ref).kill()

    def admit(self, timeout_s: float) -> None:
        """Take in the servers that Ray has placed; waits for one at most so many seconds.

        Raises:
            SweeperError: two servers have the same GPU, the hardware cannot be read anywhere, every node is cordoned,
                or for PLACEMENT_TIMEOUT_S there was not one server.
        """
        self._follow_the_cluster()
        if self.pending:
            placed = ray.wait(list(self.pending), num_returns=1, timeout=timeout_s)[0]
            if placed:  # and all others that are there
                placed = ray.wait(list(self.pending), num_returns=len(self.pending), timeout=0)[0]
            for ref in placed:
                self._take_in(self.pending.pop(ref), ref)
        elif not self._there():
            time.sleep(timeout_s)
        self._choose()
        if self._there():
            self._deserted_since = time.monotonic()
        else:
            self._complain()

    def _complain(self) -> None:
        patience = max(PLACEMENT_TIMEOUT_S, self._patience_s)
        if self.health.cordoned and not self._patience_s and not self._usable(living_nodes()):
            raise SweeperError("no node is left to measure on: " + "; ".join(self.health.cordoned.values()))
        if time.monotonic() - self._deserted_since > patience:
            raise SweeperError(
                f"no server could be placed for {patience:.0f} s: each needs {self._shape}; is the cluster busy with "
                "other jobs? See: ray status"
            )

    def _take_in(self, group: ServerGroup, ref: Any) -> None:
        try:
            group.seats = ray.get(ref)
        except RayTaskError as error:
            if not isinstance(error.cause, RayError):  # else the node of another rank was lost meanwhile
                why = f"a server's hardware cannot be read: {said(error)}"
                self.health.cordoned |= dict.fromkeys(group.nodes(), why)
                self.notices.append(f"{why}; its node is not used")
            group.kill()
            return
        except RayError:
            group.kill()
            return
        self._named += 1
        group.name = f"{group.hardware.host}-{self._named}"
        reaped = sum(seat.reaped for seat in group.seats)
        if reaped:
            self.notices.append(
                f"{group.name}: ended {reaped} process(es) of a server that had lost its owner"
            )
        clash = self._clash(group)
        if clash:
            close([group])
            self.notices.append(f"{clash}; {group.name} is not used")
            self.health.cordoned |= dict.fromkeys(group.nodes(), clash)
        else:
            self.placed.append(group)

    def _clash(self, new: ServerGroup) -> str:
        """Which other server has a GPU of this one, if any.

        Raises:
            SweeperError: one has, before the first trial.
        """
        said = shared_gpu(self._there(), new) if float(self._shape.gpus).is_integer() else ""
        if said and not self._began:
            close([new])
            raise SweeperError(said)
        return said

    def _choose(self) -> None:
        """Settle on a kind of hardware; then keep the servers of it and give the others back."""
        chosen = self.kinds.settled(self.placed, bool(self.pending)) if self.placed else None
        if chosen is None:
            return
        others = [group for group in self.placed if group.hardware.key != chosen.key]
        self.ready |= {group.name: group for group in self.placed if group.hardware.key == chosen.key}
        self.placed.clear()
        close(others)
        self.notices += self.kinds.leave_out(others)

    # Trials begin and end

    def need(self, count: int) -> None:
        """So many servers have work from here on: those that are not there yet are not waited for beyond that."""
        self._needed = count
        for ref in list(self.pending)[: max(0, len(self) - count)]:
            self.pending.pop(ref).kill()

    def dismiss(self, name: str) -> None:
        """Give a ready server back; its processors may be asked for again when more servers are needed."""
        close([self.ready.pop(name)])

    def take(self, name: str) -> ServerGroup:
        """A ready server for a trial. Raises KeyError where it is not ready."""
        group = self.ready.pop(name)
        self.busy.append(group)
        self._began = True
        if not self.health.on_probation(group.nodes()):
            self.health.went_elsewhere()
        return group

    def release(self, name: str) -> None:
        """Give a ready server back for good; one that is gone already needs no more."""
        group = self.ready.pop(name, None)
        if group is not None:
            self._given_back += 1
            close([group])

    def idle(self) -> list[str]:
        """Ready servers; one whose node has just spoiled a trial waits until another node could take that up."""
        waiting = {name for name, group in self.ready.items() if self.health.on_probation(group.nodes())}
        elsewhere = len(self.ready) > len(waiting) or any(
            not self.health.on_probation(group.nodes()) for group in self.busy
        )
        return [name for name in self.ready if name not in waiting or not elsewhere]

    def _blamed(self, group: ServerGroup, result: TrialResult) -> set[str]:
        """The nodes that a trial's end speaks of: where one of several was lost, not those that are still there.

        The cluster itself learns of a lost node only some seconds after its actors are gone.
        """
        failure = result.record.failure
        if len(group.nodes()) > 1 and failure and failure.kind is FailureClass.LOST:
            return group.lost_nodes() or group.nodes()
        return group.nodes()

    def ended(self, group: ServerGroup, result: TrialResult, usable: bool) -> None:
        """A trial is over: its server is ready again, or its processors are given back and asked for anew."""
        self.busy.remove(group)
        blamed = self._blamed(group, result)
        if usable:
            self.ready[group.name] = group
        else:  # it may be alive but out of reach, with its server on the GPUs
            group.kill()
        if not group.nodes() <= living_nodes().keys():
            return  # of several nodes, the one that is gone had the fault
        for node in self.health.ended(blamed, result):
            host = next(seat.hardware.host for seat in group.seats if seat.node == node)
            why = result.record.failure.message if result.record.failure else result.leak
            self.health.cordoned[node] = (
                f"node {host} ({node[:8]}) spoiled {self._study.resources.cordon_after} trials in a row, the last one "
                f"so: {why}"
            )
            self.notices.append(f"{self.health.cordoned[node]}; it gets no more trials")
            close([self.ready.pop(name) for name, g in list(self.ready.items()) if node in g.nodes()])
