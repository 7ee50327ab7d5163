"""A terminal on which only sweeper itself moves the cursor, whatever the texts hold that it prints."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from sweeper.printable import printable


class SafeConsole(Console):
    """Rich's console, but control characters in texts are shown (``\\x1b``) and not sent.

    Reports quote server logs, storages and run directories of other people; Rich passes an escape sequence in them on.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield segment._replace(text=printable(segment.text))
