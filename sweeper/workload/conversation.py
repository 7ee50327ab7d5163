"""The two forms of a workload's items: what a file says (conversations), and what a server is sent (prompts)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sweeper.errors import SweeperError


class WorkloadError(SweeperError):
    """The prompts are unusable, cannot be rendered, or are too few for the loads asked for."""


class CannotRenderHereError(WorkloadError):
    """This machine has no interpreter that could render the prompts; the servers' nodes may."""


class TooFewPromptsError(WorkloadError):
    """A load would have to send a prompt twice."""


@dataclass(frozen=True)
class Message:
    role: str
    content: str


Turn = tuple[Message, ...]
"""What is said before the model speaks: mostly one user message, in the first turn also system and history."""


@dataclass(frozen=True)
class Conversation:
    """What one client asks. The model answers after every turn, and reads its own answers in the next.

    ``plain``: a text without roles. ``where`` is its place in the source, for error messages.
    """

    id: str
    turns: tuple[Turn, ...]
    plain: bool
    where: str


@dataclass(frozen=True)
class Conversations:
    """All conversations of a source, in the order that the study's seed fixes; ``notes`` go into the records."""

    source: str
    items: tuple[Conversation, ...]
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Conversation]:
        return iter(self.items)


@dataclass(frozen=True)
class History:
    """How the target's chat template writes a reply into the next request.

    ``tail`` opened the reply and does not stay (an empty thought, for example). The part of a reply up to ``through``
    (the end of a thought) and the newlines after it are left out, and so is white space around the rest if ``strips``.
    """

    tail: str = ""
    through: str = ""
    strips: bool = False

    def after(self, sent: str, reply: str) -> str:
        """What was sent and its reply, as the next request begins."""
        if self.through and self.through in reply:
            reply = reply.rpartition(self.through)[2].lstrip("\n")
        return sent.removesuffix(self.tail) + (reply.strip() if self.strips else reply)


@dataclass(frozen=True)
class Prompt:
    """One conversation as texts for ``/generate``; ``id`` names it in every record.

    ``follow_ups`` are the texts between a reply and the next generation. ``input_tokens`` are those of the first
    request, None where nobody had to count them.
    """

    id: str
    text: str
    follow_ups: tuple[str, ...] = ()
    input_tokens: int | None = None
    history: History = History()

    @property
    def requests(self) -> int:
        return 1 + len(self.follow_ups)

    def turn(self, replies: Sequence[str]) -> str:
        """The text of the request that comes after these replies; of the first one for none."""
        text = self.text
        for reply, follow_up in zip(replies, self.follow_ups, strict=False):
            text = self.history.after(text, reply) + follow_up
        return text
