"""Keeps a fixed number of requests in flight and writes down when every token arrived."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from sweeper.config import Measurement, Workload
from sweeper.records import RequestRecord
from sweeper.server.command import Address
from sweeper.server.meta_info import MissingCountersError, speculation_counters
from sweeper.workload.prompts import Prompt

STOP_POLL_S = 0.25
READ_BUFFER = 4 * 2**20
"""Bytes of one stream line; releases without delta chunks send the whole text so far."""


@dataclass(frozen=True)
class LoadRun:
    """Raw outcome of one load: requests, token ids by prompt, and the token arrivals.

    ``arrivals`` holds (seconds since start, tokens) per chunk; ``window`` spans from the first completed
    request to the first worker without a further one. All workers are busy throughout, and since it begins
    and ends with a completion it holds as many prefills as decodes: ramp and drain lie outside.
    """

    concurrency: int
    requests: tuple[RequestRecord, ...]
    outputs: Mapping[str, tuple[int, ...]]
    arrivals: tuple[tuple[float, int], ...]
    window: tuple[float, float]
    sources: Mapping[str, str] = field(default_factory=dict)
    stalled_s: float | None = None
    """Seconds without a single token from any request, after which the load was given up; None: it went on."""


@dataclass
class _Run:
    """What the workers of one load share."""

    prompts: Iterator[Prompt]
    started: float
    requests: list[RequestRecord] = field(default_factory=list)
    outputs: dict[str, tuple[int, ...]] = field(default_factory=dict)
    arrivals: list[tuple[float, int]] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    first_idle: float | None = None
    last_sign_of_life: float = 0.0

    def now(self) -> float:
        return time.perf_counter() - self.started


@dataclass
class _Reply:
    """One streamed reply while it grows."""

    tokens: list[int] = field(default_factory=list)
    meta: dict[str, Any] = field(default_factory=dict)
    count: int = 0
    first_token_s: float | None = None


class LoadGenerator:
    """Sends a workload's requests to one server over ``/generate`` streams."""

    def __init__(self, address: Address, workload: Workload, measurement: Measurement) -> None:
        self._url = f"{address.url}/generate"
        self._headers = {"Authorization": f"Bearer {address.api_key}"}
        self._sampling = {
            "max_new_tokens": workload.max_new_tokens,
            "temperature": workload.temperature,
            "top_p": workload.top_p,
            "top_k": workload.top_k,
            "ignore_eos": workload.ignore_eos,
        }
        self._timeout = aiohttp.ClientTimeout(total=measurement.request_timeout_s)
        self._stall_timeout_s = measurement.stall_timeout_s

    def run(
        self, prompts: Sequence[Prompt], concurrency: int, stop: Callable[[], bool] = lambda: False
    ) -> LoadRun:
        """Send all prompts with ``concurrency`` in flight. Failed requests are records with ``error`` set.

        Once ``stop`` is true, requests in flight are dropped without a record; once a request failed, no
        further one is sent. A server that sends no token to anyone for ``stall_timeout_s`` hangs, whatever
        its /health says: the load ends with ``stalled_s`` set.
        """
        return asyncio.run(self._run(prompts, concurrency, stop))

    async def _run(self, prompts: Sequence[Prompt], concurrency: int, stop: Callable[[], bool]) -> LoadRun:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            connector=connector, headers=self._headers, timeout=self._timeout, read_bufsize=READ_BUFFER
        ) as session:
            run = _Run(iter(prompts), time.perf_counter())
            workers = [
                asyncio.ensure_future(self._worker(session, run, concurrency)) for _ in range(concurrency)
            ]
            dropped = False
            stalled_s = None
            while (await asyncio.wait(workers, timeout=STOP_POLL_S))[1]:
                silence = run.now() - run.last_sign_of_life
                if silence > self._stall_timeout_s:
                    stalled_s = silence
                if not dropped and (stalled_s is not None or stop()):
                    dropped = True
                    for worker in workers:
                        worker.cancel()
            await asyncio.gather(*workers, return_exceptions=dropped)
        end = run.now()
        ramped = min((request.done_s for request in run.requests), default=0.0)
        drained = run.first_idle if run.first_idle is not None else end
        window = (ramped, drained) if drained > ramped else (0.0, end)
        return LoadRun(
            concurrency,
            tuple(run.requests),
            run.outputs,
            tuple(run.arrivals),
            window,
            run.sources,
            stalled_s,
        )

    async def _worker(self, session: aiohttp.ClientSession, run: _Run, concurrency: int) -> None:
        for prompt in run.prompts:
            if any(request.error for request in run.requests[-concurrency:]):
                break
            run.requests.append(await self._request(session, run, prompt, concurrency))
        if run.first_idle is None:
            run.first_idle = run.now()

    async def _request(
        self, session: aiohttp.ClientSession, run: _Run, prompt: Prompt, concurrency: int
    ) -> RequestRecord:
        reply, sent, error = _Reply(), run.now(), None
        try:
            error = await self._stream(session, run, prompt, reply)
        except asyncio.TimeoutError:
            error = f"timed out after {run.now() - sent:.0f} s with {reply.count} tokens"
        except (aiohttp.ClientError, OSError, ValueError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        record = RequestRecord(
            prompt=prompt.id,
            concurrency=concurrency,
            sent_s=sent,
            first_token_s=reply.first_token_s,
            done_s=run.now(),
            prompt_tokens=int(reply.meta.get("prompt_tokens", 0)),
            completion_tokens=reply.count,
            cached_tokens=int(reply.meta.get("cached_tokens", 0)),
            finish_reason=_finish_type(reply.meta),
            error=error,
        )
        if error:
            return record
        run.outputs[prompt.id] = tuple(reply.tokens)
        return _with_counters(record, reply.meta, run.sources)

    async def _stream(
        self, session: aiohttp.ClientSession, run: _Run, prompt: Prompt, reply: _Reply
    ) -> str | None:
        """Read one reply to its end; returns what went wrong in a stream that began well."""
        body = {"text": prompt.text, "sampling_params": self._sampling, "stream": True}
        async with session.post(self._url, json=body) as response:
            if response.status != 200:
                return f"HTTP {response.status}: {(await response.text())[:300]}"
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    return f"error in the stream: {str(chunk['error'])[:300]}"
                _take(chunk, run, reply)
        reason = _finish_type(reply.meta)
        if reason in ("stop", "length"):
            return None
        return (
            f"aborted: {reply.meta.get('finish_reason')}"
            if reason
            else "the stream ended without a finish reason"
        )


def _take(chunk: dict[str, Any], run: _Run, reply: _Reply) -> None:
    """Account for one chunk. ``completion_tokens`` is cumulative in every release; ids are deltas or not."""
    now = run.now()
    reply.meta = chunk["meta_info"]
    count = int(reply.meta["completion_tokens"])
    if count > reply.count:
        if reply.first_token_s is None:
            reply.first_token_s = now
        run.last_sign_of_life = now
        run.arrivals.append((now, count - reply.count))
        ids = chunk.get("output_ids") or []
        reply.tokens = list(ids) if len(ids) == count else reply.tokens + list(ids)
        reply.count = count


def _finish_type(meta: Mapping[str, Any]) -> str:
    reason = meta.get("finish_reason")
    return str(reason.get("type", "")) if isinstance(reason, dict) else str(reason or "")


def _with_counters(record: RequestRecord, meta: Mapping[str, Any], sources: dict[str, str]) -> RequestRecord:
    try:
        counters = speculation_counters(meta)
    except MissingCountersError as problem:
        return replace(record, error=str(problem))
    if counters is None:
        return record
    sources.update(counters.sources)
    return replace(
        record,
        verify_rounds=counters.verify_rounds,
        accepted_drafts=counters.accepted_drafts,
        histogram=counters.histogram,
    )
