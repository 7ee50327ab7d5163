"""A server that goes on after its trial, for another draft's weights."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from sweeper.server.process import LeakError, ServerProcess
from sweeper.speculation import SpeculationConfig


@dataclass
class KeptServer:
    """It runs ``config``, was started with draft ``launched_with`` and writes to ``log``; ``held`` are its ports.

    ``checksum`` is of the draft's weights in it, empty where it does not tell.
    """

    process: ServerProcess
    config: SpeculationConfig
    launched_with: str
    log: Path
    held: ExitStack
    checksum: str = ""

    def can_take(self, config: SpeculationConfig) -> bool:
        """Whether the two differ in their drafts alone, and the server lives."""
        return replace(self.config, draft=config.draft) == config and self.process.alive


class Keeper:
    """Has at most one server between the trials of one place. Two threads may end it: one that waits takes no other."""

    def __init__(self) -> None:
        self.kept: KeptServer | None = None
        self._ending = threading.Lock()

    def end(self, at_once: bool = False) -> str | None:
        """Stop the server, if there is one; what it left behind, in words."""
        with self._ending:
            if self.kept is None:
                return None
            kept, self.kept = self.kept, None
            try:
                with kept.held:
                    kept.process.stop(at_once)
            except LeakError as leak:
                return str(leak)
            except Exception as fault:  # nobody knows what is left
                return f"its server could not be ended: {type(fault).__name__}: {fault}"
            finally:
                kept.log.unlink(missing_ok=True)
            return None
