"""Sends the requests of one load, closed or open loop, and writes down when every token arrived."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace

import orjson
import uvloop

from sweeper.config import Measurement, Workload
from sweeper.load.connection import Connections, HttpError
from sweeper.load.order import LoadRun, Order, Progress
from sweeper.load.reply import Reply, ReplyError
from sweeper.records import RequestRecord
from sweeper.server.command import Address
from sweeper.server.meta_info import MissingCountersError, speculation_counters
from sweeper.workload.conversation import Prompt

__all__ = ["LoadGenerator", "LoadRun", "Order"]

POLL_S = 0.25
TIMER_S = 0.001


class LoadGenerator:
    """Sends a workload's requests to one server over ``/generate`` streams."""

    def __init__(self, address: Address, workload: Workload, measurement: Measurement) -> None:
        self._address = address
        self._sampling: Mapping[str, float] = {
            "max_new_tokens": workload.max_new_tokens,
            "temperature": workload.temperature,
            "top_p": workload.top_p,
            "top_k": workload.top_k,
            "ignore_eos": workload.ignore_eos,
        }
        self._measurement = measurement

    def run(self, order: Order, stop: Callable[[], bool] = lambda: False) -> LoadRun:
        """Send what is ordered. Failed requests are records with ``error`` set; after one, no further one is sent.

        Closed loop: ``load.concurrency`` workers send their next request as soon as they have a reply. Open loop:
        requests are sent at Poisson times that ``measurement.seed`` fixes, however many are in flight, and
        ``sent_s`` is the scheduled time, so that what the client owes to a slow server counts as latency.
        A prompt with follow-ups is one conversation: request ``id#2`` follows on the reply to ``id``, and so on.

        Once ``stop`` is true, requests in flight are dropped without a record. A server that sends no token to
        anyone for ``stall_timeout_s`` hangs, whatever its /health says: the load ends with ``stalled_s`` set.
        """
        began = time.process_time()
        collecting = gc.isenabled()
        gc.disable()  # its pauses of 10 ms and more would make the tokens of all streams late
        try:
            run = uvloop.run(self._run(order, stop))
        finally:
            if collecting:
                gc.enable()
        return replace(run, cpu_s=time.process_time() - began)

    async def _run(self, order: Order, stop: Callable[[], bool]) -> LoadRun:
        sampling = dict(self._sampling)
        if order.max_new_tokens is not None:
            sampling["max_new_tokens"] = order.max_new_tokens
        connections = Connections(self._address, self._measurement.request_timeout_s)
        try:
            return await _Delivery(connections, sampling, self._measurement, Progress(order)).run(stop)
        finally:
            connections.close()


class _Delivery:
    """One order while it is carried out."""

    def __init__(
        self,
        connections: Connections,
        sampling: Mapping[str, float],
        measurement: Measurement,
        progress: Progress,
    ) -> None:
        self._connections = connections
        self._sampling = sampling
        self._measurement = measurement
        self._progress = progress
        self._tasks: set[asyncio.Task[object]] = set()
        self._failure: BaseException | None = None
        self._news = asyncio.Event()

    async def run(self, stop: Callable[[], bool]) -> LoadRun:
        load = self._progress.order.load
        if load.open_loop:
            self._start(self._schedule(load.rate))
        for _ in range(load.concurrency):
            self._start(self._work())
        stalled_s = await self._watch(stop)
        if self._failure is not None:
            raise self._failure
        return self._progress.outcome(stalled_s)

    def _start(self, coroutine: Coroutine[object, None, object]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[object]) -> None:
        self._tasks.remove(task)
        if not task.cancelled() and task.exception():
            self._failure = self._failure or task.exception()
        if self._failure is not None or not self._tasks:
            self._news.set()

    async def _watch(self, stop: Callable[[], bool]) -> float | None:
        """Wait for the tasks to end; returns the silence, in seconds, that they were given up for."""
        stalled_s = None
        dropped = False
        while self._tasks:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._news.wait(), POLL_S)
            self._news.clear()
            if dropped:
                continue
            if self._progress.silence_s() > self._measurement.stall_timeout_s:
                stalled_s = self._progress.silence_s()
            if stalled_s is not None or self._failure is not None or (self._tasks and stop()):
                dropped = True
                for task in self._tasks:
                    task.cancel()
        return stalled_s

    async def _work(self) -> None:
        """One of the closed loop's workers."""
        while (prompt := self._progress.next_prompt()) is not None:
            await self._converse(prompt)

    async def _schedule(self, rate: float) -> None:
        """Start conversations at Poisson times: exponential gaps of 1/rate seconds on average."""
        gaps = random.Random(self._measurement.seed)
        progress, due = self._progress, 0.0
        while progress.goes_on():
            if (early := due - progress.now()) > 0:
                # uvloop counts in whole milliseconds; the rest is waited for by going round.
                await asyncio.sleep(min(max(early - TIMER_S, 0), POLL_S))
                continue
            prompt = progress.next_prompt()
            if prompt is None:
                return
            self._start(self._converse(prompt, due))
            due += gaps.expovariate(rate)

    async def _converse(self, prompt: Prompt, due: float | None = None) -> None:
        """Send a prompt, and its follow-ups as long as every reply is good and the load goes on."""
        replies: list[str] = []
        while True:
            turn = len(replies) + 1
            request = Prompt(prompt.id if turn == 1 else f"{prompt.id}#{turn}", prompt.turn(replies))
            record, reply = await self._request(request, turn < prompt.requests, due)
            if record.error or turn == prompt.requests or not self._progress.next_turn():
                return
            replies.append(reply.text)
            due = None

    async def _request(
        self, prompt: Prompt, keep_text: bool, due: float | None
    ) -> tuple[RequestRecord, Reply]:
        progress = self._progress
        progress.begin()
        reply = Reply(keep_text, self._hear)
        begun = progress.now()
        error = None
        try:
            await self._stream(prompt, reply)
        except asyncio.TimeoutError:
            error = f"timed out after {progress.now() - begun:.0f} s with {reply.count} tokens"
        except (ReplyError, HttpError) as problem:
            error = str(problem)
        except (OSError, ValueError, orjson.JSONEncodeError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        finally:
            progress.in_flight -= 1
        sent = begun if reply.sent_at is None else reply.sent_at - progress.started
        if due is not None:
            progress.late_s = max(progress.late_s, sent - due)
        record = self._record(prompt, reply, sent if due is None else due, error)
        progress.finish(record)
        return record, reply

    def _hear(self, at: float) -> None:
        self._progress.last_sign_of_life = at - self._progress.started

    async def _stream(self, prompt: Prompt, reply: Reply) -> None:
        body = {"text": prompt.text, "sampling_params": self._sampling, "stream": True}
        await self._connections.post(orjson.dumps(body), reply)
        reply.require_finished()

    def _record(self, prompt: Prompt, reply: Reply, sent_s: float, error: str | None) -> RequestRecord:
        progress = self._progress
        arrivals = tuple(at - progress.started for at in reply.arrival_s)
        record = RequestRecord(
            prompt=prompt.id,
            load=str(progress.order.load),
            sent_s=sent_s,
            first_token_s=arrivals[0] if arrivals else None,
            # When it was read, not when this task got its turn; nobody waits for a failed one.
            done_s=progress.now() if error or reply.read_at is None else reply.read_at - progress.started,
            prompt_tokens=int(reply.meta.get("prompt_tokens") or 0),
            completion_tokens=reply.count,
            cached_tokens=int(reply.meta.get("cached_tokens") or 0),
            finish_reason=reply.finish_reason,
            arrival_s=arrivals,
            arrival_tokens=tuple(reply.arrival_tokens),
            error=error,
        )
        if error:
            return record
        if (ids := reply.token_ids) is not None:
            progress.outputs[prompt.id] = ids
        try:
            counters = speculation_counters(reply.meta)
        except MissingCountersError as problem:
            return replace(record, error=str(problem))
        if counters is None:
            return record
        progress.sources.update(counters.sources)
        return replace(
            record,
            verify_rounds=counters.verify_rounds,
            accepted_drafts=counters.accepted_drafts,
            histogram=counters.histogram,
        )
