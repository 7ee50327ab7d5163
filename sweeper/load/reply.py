"""A streamed reply of ``/generate``: what every chunk adds to it, in the forms of all releases since 0.5.2.

``meta_info.completion_tokens`` counts from the start in all of them. Token ids and text are either what is new or
all so far, and not always the same: up to 0.5.9 ``--stream-output`` makes deltas of the ids alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import orjson

EVENT = b"data: {"
EVENT_END = b"\n\n"


class ReplyError(Exception):
    """The server says in a stream that began well that something is wrong, or what it says makes no sense."""


class Reply:
    """Grows with ``feed``. Times are those of the performance counter, in seconds.

    ``sent_at`` is when the request left, ``read_at`` when the latest part of the reply came, None if never.
    ``heard`` is called with the time of every chunk that brings tokens.
    """

    def __init__(self, keep_text: bool, heard: Callable[[float], None]) -> None:
        self.sent_at: float | None = None
        self.read_at: float | None = None
        self.count = 0
        self.tokens: list[int] = []
        self.meta: Mapping[str, Any] = {}
        self.arrival_s: list[float] = []
        self.arrival_tokens: list[int] = []
        self._keep_text = keep_text
        self._texts: list[str] = []
        self._so_far = False
        self._heard = heard
        self._rest = b""

    def feed(self, body: bytes, at: float) -> None:
        """Account for a piece of the stream that was read ``at`` this time.

        Raises:
            ReplyError: the server reports an error.
            ValueError: an event is not what SGLang sends.
        """
        self.read_at = at
        *events, self._rest = (self._rest + body if self._rest else body).split(EVENT_END)
        for event in events:
            if event.startswith(EVENT):  # all others: the end mark, comments
                self._take(orjson.loads(event[6:]), at)

    def _take(self, chunk: Mapping[str, Any], at: float) -> None:
        if "error" in chunk:
            raise ReplyError(f"error in the stream: {str(chunk['error'])[:300]}")
        try:
            self.meta = chunk["meta_info"]
            count = int(self.meta["completion_tokens"])
        except (KeyError, TypeError):
            raise ReplyError(f"a chunk without meta_info.completion_tokens: {str(chunk)[:300]}") from None
        ids = chunk.get("output_ids") or []
        # The first chunk looks alike in both forms; after it, no delta is as long as everything.
        self._so_far = self._so_far or (0 < self.count <= count == len(ids))
        if self._keep_text:
            text = str(chunk.get("text") or "")
            if self._so_far:
                self._texts.clear()
            self._texts.append(text)
        if count > self.count:
            self._heard(at)
            self.arrival_s.append(at)
            self.arrival_tokens.append(count - self.count)
            if self._so_far:
                self.tokens.clear()
            self.tokens.extend(ids)
            self.count = count

    @property
    def finish_reason(self) -> str:
        """``stop``, ``length``, ``abort``; empty while it goes on."""
        reason = self.meta.get("finish_reason")
        return str(reason.get("type", "")) if isinstance(reason, dict) else str(reason or "")

    def require_finished(self) -> None:
        """Raises ReplyError where the stream ended in another way than a reply should."""
        if self.finish_reason not in ("stop", "length"):
            raise ReplyError(
                f"aborted: {self.meta['finish_reason']}"
                if self.finish_reason
                else "the stream ended without a finish reason"
            )

    @property
    def token_ids(self) -> tuple[int, ...] | None:
        """None where ids were lost: up to 0.5.9, deltas that a slow server merged."""
        return tuple(self.tokens) if len(self.tokens) == self.count else None

    @property
    def text(self) -> str:
        """The whole text; only of replies that keep it."""
        return whole_text(self._texts)


def whole_text(texts: Sequence[str]) -> str:
    """A reply's text from its chunks' texts, whether each is what is new or all so far.

    All so far: every text begins with the one before, and the last is longer than the first. Deltas do that only
    where they repeat themselves in ever longer pieces (``a``, ``aa``), and do not keep it up. One piece again and
    again counts as deltas: an output that repeats itself is more likely than one whose later tokens show nothing.
    """
    told = [text for text in texts if text]
    if not told:
        return ""
    grows = len(told[-1]) > len(told[0]) and all(new.startswith(old) for old, new in pairwise(told))
    return told[-1] if grows else "".join(told)
