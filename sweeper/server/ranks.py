"""A server that spans several nodes: rank 0 here, the others wherever somebody else starts and ends them.

All ranks share one life. They are started together; the server serves when rank 0 does; when one rank ends, or its
node is out of reach, the trial ends; and none is gone before all are.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sweeper.records import Hardware
from sweeper.server.command import Address
from sweeper.server.process import LeakError, ServerDiedError, ServerProcess
from sweeper.server.setup import EngineSetup
from sweeper.speculation import SpeculationConfig

SETTLE_S = 2.0
"""When a node dies its server may go before whoever watches over it does."""


class UnreachableRankError(Exception):
    """The node of a rank, or whatever holds the rank there, does not answer any more."""


class RankLostError(ServerDiedError):
    """A rank's node was lost, and the server with it."""


@dataclass(frozen=True)
class RankOrder:
    """What another node must know to start its rank; ``meeting``: HOST:PORT on the node of rank 0."""

    config: SpeculationConfig
    setup: EngineSetup
    meeting: str


class RemoteRank(Protocol):
    """One rank on another node. Starting and stopping begin at once and go on by themselves."""

    @property
    def name(self) -> str:
        """Which rank, and where: ``rank 1 on node-b``."""
        ...

    def start(self, order: RankOrder) -> None: ...

    def ended(self) -> str | None:
        """Why the rank is gone; None while it lives. Cheap, asked several times a second.

        Raises:
            UnreachableRankError: nobody there knows.
        """
        ...

    def log(self) -> str:
        """What the rank printed.

        Raises:
            UnreachableRankError: its node does not answer.
        """
        ...

    def stop(self, at_once: bool) -> None:
        """Begin to end it: wait a while for it to follow rank 0, or ``at_once`` with SIGKILL."""
        ...

    def wait_until_gone(self) -> None:
        """Raises LeakError where something of it is left, UnreachableRankError where nobody knows."""
        ...


@dataclass(frozen=True)
class Ranks:
    """The address of rank 0's node, the other ranks, and what all run on; none for a server on one node."""

    node: str = ""
    others: tuple[RemoteRank, ...] = ()
    hardware: Hardware | None = None


ONE_NODE = Ranks()


class MultiNodeServer(ServerProcess):
    """Rank 0, as any server, and the other ranks with it."""

    def __init__(
        self,
        command: list[str],
        environment: Mapping[str, str],
        address: Address,
        log: Path,
        others: Sequence[RemoteRank],
        order: RankOrder,
    ) -> None:
        self._others = tuple(others)
        for rank in self._others:
            rank.start(order)
        try:
            super().__init__(command, environment, address, log)
        except BaseException:
            for rank in self._others:
                rank.stop(at_once=True)
            raise

    @property
    def alive(self) -> bool:
        return super().alive and not self._gone_others()

    def raise_if_dead(self) -> None:
        """Raises RankLostError if a node is gone, ServerDiedError if any rank is."""
        try:
            super().raise_if_dead()
        except ServerDiedError as death:
            raise self._died(str(death)) from None
        gone = self._gone_others()
        if gone:
            raise self._died("; ".join(gone))

    def _died(self, what: str) -> ServerDiedError:
        """Ranks take each other down when one is lost, so all are asked before the loss counts as a crash."""
        time.sleep(SETTLE_S)
        logs, lost = [self.log()], []
        for rank in self._others:
            try:
                logs.append(labelled(rank.name, rank.log()))
            except UnreachableRankError as problem:
                lost.append(f"{rank.name}: {problem}")
        if lost:
            return RankLostError("; ".join(lost), "\n".join(logs))
        return ServerDiedError(what, "\n".join(logs))

    def _gone_others(self) -> list[str]:
        found = []
        for rank in self._others:
            try:
                why = rank.ended()
            except UnreachableRankError as problem:
                why = str(problem)
            if why is not None:
                found.append(f"{rank.name}: {why}")
        return found

    def stop(self, at_once: bool = False) -> None:
        """End all ranks together and wait for each; their logs go to the end of rank 0's.

        Raises:
            LeakError: something of a rank is left, or its node is out of reach, so that nobody knows.
        """
        if self._stopped:
            return
        at_once = at_once or not self.alive
        for rank in self._others:
            rank.stop(at_once)
        problems = []
        try:
            super().stop(at_once)
        except LeakError as leak:
            problems.append(f"rank 0: {leak}")
        for rank in self._others:
            try:
                rank.wait_until_gone()
                text = rank.log()
            except (LeakError, UnreachableRankError) as problem:
                problems.append(f"{rank.name}: {problem}")
                text = str(problem)
            with self._log_path.open("a", encoding="utf-8") as log:
                log.write("\n" + labelled(rank.name, text))
        if problems:
            raise LeakError("; ".join(problems))


def labelled(name: str, log: str) -> str:
    """A rank's log under its name."""
    return f"== {name} ==\n{log.rstrip()}\n"
