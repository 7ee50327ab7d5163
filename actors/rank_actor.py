"""A rank of a server that spans several nodes: the actor on its node, and what rank 0 sees of it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError

from actors.placement import ServerShape
from actors.ray_words import said
from actors.seat import Place, Seat
from sweeper.server.adaptive_file import write_adaptive_file
from sweeper.server.command import launch_command, launch_environment
from sweeper.server.process import (
    GPU_GRACE_S,
    KILL_GRACE_S,
    POLL_S,
    PORT_GRACE_S,
    TERM_GRACE_S,
    LeakError,
    ServerDiedError,
    ServerProcess,
    fresh_address,
)
from sweeper.server.ranks import RankOrder, UnreachableRankError
from sweeper.trial.order import TrialPlan

THREADS = 4
"""One runs the rank, one waits for its end, and ``log`` and ``seat`` are answered meanwhile."""

ANSWER_S = 15.0
STOP_S = TERM_GRACE_S + KILL_GRACE_S + PORT_GRACE_S + GPU_GRACE_S + ANSWER_S
LOG_LIMIT = 500_000


class RankActor:
    """The class behind the Ray actor; it runs one rank at a time and dies with its group."""

    def __init__(self, plan: TrialPlan, shape: ServerShape, number: int) -> None:
        self._plan, self._number = plan, number
        self._place = Place(plan.study, shape)
        self._server: ServerProcess | None = None
        self._lock = threading.Lock()
        self._stopping: dict[str, bool] = {}
        self._gone: dict[str, threading.Event] = {}
        self._leak: str | None = None

    def seat(self) -> Seat:
        return self._place.seat()

    def run(self, order: RankOrder) -> str:
        """Run a rank until it ends or is stopped; says why it ended. A launch is known by where its ranks meet."""
        try:
            return self._run(order)
        finally:
            self._event(order.meeting).set()

    def _run(self, order: RankOrder) -> str:
        study = self._plan.study
        self._server = None
        with fresh_address() as own:
            address = replace(own, rank=self._number, meeting=order.meeting, nccl_port=0)
            write_adaptive_file(order.config)
            command = launch_command(study, order.config, order.setup, address)
            server = ServerProcess(
                command, launch_environment(study), address, self._place.scratch / "rank.log"
            )
            self._server = server
            why = ""
            try:
                while not why and order.meeting not in self._stopping:
                    try:
                        server.raise_if_dead()
                    except ServerDiedError as death:
                        why = str(death)
                    threading.Event().wait(POLL_S)
            finally:
                try:
                    server.stop(at_once=self._stopping.get(order.meeting, True))
                except LeakError as leak:
                    self._leak = str(leak)
        return why or "it was stopped"

    def _event(self, meeting: str) -> threading.Event:
        with self._lock:
            return self._gone.setdefault(meeting, threading.Event())

    def log(self) -> str:
        """What the rank of the last launch printed, its end at least."""
        return self._server.log()[-LOG_LIMIT:] if self._server else ""

    def stop(self, meeting: str, at_once: bool) -> str | None:
        """End the rank of a launch and wait until it is gone; what is left of it, if anything."""
        self._stopping[meeting] = at_once
        self._event(meeting).wait()
        return self._leak

    def close(self) -> None:
        self._place.close()


class RayRank:
    """A ``RemoteRank`` over a RankActor's handle."""

    def __init__(self, actor: Any, number: int, host: str) -> None:
        self._actor, self._number, self._host = actor, number, host
        self._meeting = ""
        self._end: Any = None
        self._stop: Any = None

    @property
    def name(self) -> str:
        return f"rank {self._number} on {self._host}"

    def start(self, order: RankOrder) -> None:
        self._meeting = order.meeting
        self._end, self._stop = self._actor.run.remote(order), None

    def ended(self) -> str | None:
        done, _ = ray.wait([self._end], timeout=0)
        if not done:
            return None
        try:
            return str(ray.get(self._end))
        except RayTaskError as error:
            return f"it could not run: {said(error)}"
        except RayError as error:
            raise UnreachableRankError(said(error)) from None

    def log(self) -> str:
        return str(self._answer(self._actor.log.remote(), ANSWER_S))

    def stop(self, at_once: bool) -> None:
        self._stop = self._actor.stop.remote(self._meeting, at_once)

    def wait_until_gone(self) -> None:
        leak = self._answer(self._stop, STOP_S)
        if leak:
            raise LeakError(str(leak))

    def _answer(self, ref: Any, timeout_s: float) -> Any:
        try:
            return ray.get(ref, timeout=timeout_s)
        except GetTimeoutError:
            raise UnreachableRankError(f"it did not answer within {timeout_s:.0f} s") from None
        except RayError as error:
            raise UnreachableRankError(said(error)) from None
