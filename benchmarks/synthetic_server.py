"""A server that streams tokens at a known pace in SGLang's form, and tells when it really sent each of them.

``POST /generate`` answers as SGLang 0.5.23 does with incremental streaming output and metrics; ``GET /truth`` lists,
by prompt, when the request was there and when each chunk was handed to the kernel, in seconds of the system's
monotonic clock, which all processes of a machine share. Run it by itself to try a client:

    python benchmarks/synthetic_server.py --ttft-ms 100 --step-ms 20
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
import json
import time
import zlib
from array import array
from dataclasses import dataclass, field
from functools import cache
from typing import Any

TEXT = " return"
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n"
    b"date: Thu, 01 Jan 2026 00:00:00 GMT\r\nserver: uvicorn\r\n\r\n"
)
DONE = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


@dataclass(frozen=True)
class Pace:
    """``in_step``: tokens leave at multiples of ``step_s`` for all streams at once, as from one batch on a GPU.

    Otherwise a reply has between half and all of the tokens asked for, so that streams do not begin and end together.
    """

    ttft_s: float
    step_s: float
    in_step: bool

    def tokens(self, prompt: str, most: int) -> int:
        return most if self.in_step else most - zlib.crc32(prompt.encode()) % (most // 2 + 1)

    def first_token(self, received: float) -> float:
        due = received + self.ttft_s
        return -(-due // self.step_s) * self.step_s if self.in_step else due


@cache
def chunk(index: int, last: bool) -> bytes:
    """The chunk with token ``index`` (from 0): some 650 bytes, 900 for the last one."""
    now = 1767225600.123456
    meta: dict[str, Any] = {
        "id": "5b0d1c6f0a7e4c3f9d2a8b7c6e5f4a3b",
        "finish_reason": {"type": "length", "length": index + 1} if last else None,
        "prompt_tokens": 128,
        "weight_version": "default",
        "num_retractions": 0,
        "forward_entry_time": now,
        "prefill_finished_time": now,
        "queue_time": 0.0023456789,
        "reasoning_tokens": 0,
        "completion_tokens": index + 1,
        "cached_tokens": 0,
        "cached_tokens_details": None,
        "dp_rank": None,
        "request_received_ts": now,
        "first_token_latency": 0.10012345678,
        "api_server_dispatch_finish_ts": now,
        "response_sent_to_client_ts": now,
        "request_finished_ts": None,
        "decode_throughput": 49.87654321,
        "e2e_latency": 1.23456789,
    }
    data = (
        b"data: "
        + json.dumps({"text": TEXT, "output_ids": [1000 + index], "meta_info": meta}).encode()
        + b"\n\n"
    )
    return b"%x\r\n%s\r\n" % (len(data), data)


@dataclass
class Stream:
    """One reply under way."""

    transport: asyncio.Transport
    prompt: str
    tokens: int
    received: float
    due: float
    sent: array[float] = field(default_factory=lambda: array("d"))


class Emitter:
    """Sends what is due, in the order in which it is due."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.truth: list[Stream] = []
        self._due: list[tuple[float, int, Stream]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self, transport: asyncio.Transport, request: bytes, received: float) -> None:
        body = json.loads(request)
        tokens = self.pace.tokens(body["text"], int(body["sampling_params"]["max_new_tokens"]))
        stream = Stream(transport, body["text"], tokens, received, self.pace.first_token(received))
        transport.write(HEAD)
        self.truth.append(stream)
        self._push(stream)
        self._wait()

    def _push(self, stream: Stream) -> None:
        self._count += 1
        heapq.heappush(self._due, (stream.due, self._count, stream))

    def _wait(self) -> None:
        if self._timer:
            self._timer.cancel()
        if self._due:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(self._due[0][0] - time.perf_counter(), 0), self._send)

    def _send(self) -> None:
        clock, step = time.perf_counter, self.pace.step_s
        while self._due and self._due[0][0] <= clock():
            stream = heapq.heappop(self._due)[2]
            if stream.transport.is_closing():
                continue
            index = len(stream.sent)
            last = index + 1 == stream.tokens
            stream.sent.append(clock())
            stream.transport.write(chunk(index, False) if not last else chunk(index, True) + DONE)
            if not last:
                stream.due += step
                self._push(stream)
        self._wait()


class Connection(asyncio.Protocol):
    """Just enough of HTTP/1.1 for one well-behaved client: requests with a length, one after another."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received = time.perf_counter()
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        length = int(lengths[0].split(b":")[1]) if lengths else 0
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        if head.startswith(b"GET /truth "):
            self._tell()
        else:
            # Later, so that requests which arrive together do not wait for each other's handling.
            loop = asyncio.get_running_loop()
            loop.call_soon(self._emitter.start, self._transport, rest[:length], received)

    def _tell(self) -> None:
        truth = {s.prompt: {"received": s.received, "sent": s.sent.tolist()} for s in self._emitter.truth}
        answer = json.dumps(truth).encode()
        self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer) + answer)


async def serve(pace: Pace) -> None:
    """Serves until it is ended; prints its port first."""
    emitter = Emitter(pace)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(emitter), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ttft-ms", type=float, default=100)
    parser.add_argument("--step-ms", type=float, default=20)
    parser.add_argument(
        "--in-step", action="store_true", help="all streams' tokens leave at the same moments"
    )
    options = parser.parse_args()
    asyncio.run(serve(Pace(options.ttft_ms / 1000, options.step_ms / 1000, options.in_step)))


if __name__ == "__main__":
    main()
