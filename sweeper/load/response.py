"""One HTTP/1.1 response, decoded as its bytes come in.

No library's: h11 takes 0.17 ms for every request, and where a batch of 256 ends at once the last one would wait for all
of them (docs/benchmarks.md). aiohttp's client is slower still, and says nothing about when it read what. With httptools
installed, uvicorn changes its own HTTP code: the client would change the server that it measures.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST_HEAD = 2**16
"""Bytes of status line and headers; who sends more is no server of ours."""


@dataclass
class Response:
    """Grows with ``feed``. ``status`` is 0 until the head is there.

    A body is chunked, or as long as the head says, or ends with the connection (RFC 9112, section 6.3).
    """

    status: int = 0
    keep_alive: bool = True
    complete: bool = False
    _buffer: bytes = b""
    _chunked: bool = False
    _left: int | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """The pieces of the body that ``data`` brings to an end.

        Raises:
            ValueError: this is not HTTP/1.
        """
        self._buffer = self._buffer + data if self._buffer else data
        if not self.status and not self._read_head():
            return []
        return self._read_chunks() if self._chunked else self._read_plain()

    def connection_ended(self) -> None:
        """Completes a body whose end only the end of the connection tells."""
        self.complete = self.complete or bool(self.status and not self._chunked and self._left is None)

    def _read_head(self) -> bool:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1."[: len(head)]) or len(head) > MOST_HEAD:
            raise ValueError(f"no HTTP/1 response: {head[:80]!r}")
        if not end:
            return False
        self._buffer = rest
        first, *lines = head.split(b"\r\n")
        status = int(first.split()[1])
        if status < 200:  # informational; the real one follows
            return self._read_head()
        fields = {
            name.strip().lower(): value.strip().lower()
            for name, _, value in (b.partition(b":") for b in lines)
        }
        self.status = status
        self.keep_alive = first.startswith(b"HTTP/1.1") and fields.get(b"connection") != b"close"
        self._chunked = fields.get(b"transfer-encoding", b"").endswith(b"chunked")
        if b"content-length" in fields:
            self._left = int(fields[b"content-length"])
        return True

    def _read_plain(self) -> list[bytes]:
        piece, self._buffer = self._buffer, b""
        if self._left is not None:
            piece = piece[: self._left]
            self._left -= len(piece)
            self.complete = self._left == 0
        return [piece] if piece else []

    def _read_chunks(self) -> list[bytes]:
        """Only whole chunks: SGLang's servers put one event into each."""
        buffer, at, pieces = self._buffer, 0, []
        while (line_end := buffer.find(b"\r\n", at)) >= 0:
            size = int(buffer[at:line_end].split(b";", 1)[0], 16)
            begin, end = line_end + 2, line_end + 2 + size
            if size == 0:  # trailers, mostly none, up to an empty line
                self.complete = buffer.find(b"\r\n\r\n", line_end) >= 0
                break
            if len(buffer) < end + 2:
                break
            pieces.append(buffer[begin:end])
            at = end + 2
        self._buffer = buffer[at:]
        return pieces
