"""One kind of hardware for a study: which one, and which nodes have another."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from actors.server_group import ServerGroup
from sweeper.records import Hardware

GATHER_S = 20.0
"""How long the first servers wait for others before the kind is chosen."""


class Kinds:
    """Trials compare only on equal hardware. The kind with the most servers is chosen, unless ``wished`` is there.

    ``wished`` is the key of what an earlier run of the study measured on; ``others`` are kinds by node.
    """

    def __init__(self) -> None:
        self.chosen: Hardware | None = None
        self.wished = ""
        self.others: dict[str, str] = {}
        self._since = 0.0

    def settled(self, placed: Sequence[ServerGroup], more_to_come: bool) -> Hardware | None:
        """The kind, once the servers that are there (at least one) have waited for others; None until then."""
        if self.chosen is None:
            self._since = self._since or time.monotonic()
            if more_to_come and time.monotonic() - self._since < GATHER_S:
                return None
            counts = Counter(group.hardware.key for group in placed)
            key = self.wished if self.wished in counts else counts.most_common(1)[0][0]
            self.chosen = next(group.hardware for group in placed if group.hardware.key == key)
        return self.chosen

    def leave_out(self, groups: Sequence[ServerGroup]) -> list[str]:
        """Note servers of other kinds; returns what a person should know of kinds that are new."""
        assert self.chosen is not None
        said = [
            f"measuring on {self.chosen.key}; {count} server(s) on {kind} are not used, since trials compare only on "
            "equal hardware; for those run a second study with --name and resources.accelerator_type"
            for kind, count in Counter(group.hardware.key for group in groups).items()
            if kind not in self.others.values()
        ]
        self.others |= {node: group.hardware.key for group in groups for node in group.nodes()}
        return said
