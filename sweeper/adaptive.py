"""SGLang's adaptive speculation: which chain runs at which batch size. Pure functions.

``--speculative-adaptive-config`` names a JSON file with a slot per batch size, from which on it holds; a running batch
belongs to the slot with the largest size that does not exceed it. A slot with one candidate is a fixed choice, one
with several lets SGLang choose by the accept length it sees. 0 steps mean no drafting.
Source: SGLang 0.5.23, ``srt/speculative/adaptive_spec_params.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

SGLANG_DEFAULT = "default"
"""The policy that SGLang has built in; it needs no file."""

_SLOT = re.compile(r"(\d{1,5}):(\d{1,3}(?:,\d{1,3})*)")


@dataclass(frozen=True)
class AdaptivePolicy:
    """``slots``: (batch size from which on it holds, candidate steps), ascending."""

    slots: tuple[tuple[int, tuple[int, ...]], ...]

    @classmethod
    def parse(cls, text: str) -> AdaptivePolicy:
        """``1:3 8:0,1``: chains of 3 up to a batch of 7, from 8 on one step or none.

        Raises:
            ValueError: that is no policy.
        """
        found = [_SLOT.fullmatch(word) for word in text.split()]
        slots = tuple(
            (int(match[1]), tuple(sorted({int(step) for step in match[2].split(",")})))
            for match in found
            if match
        )
        sizes = [size for size, _ in slots]
        if not slots or None in found or sizes != sorted(set(sizes)) or sizes[0] != 1:
            raise ValueError(
                f"{text!r} is no adaptive policy: write BATCH:STEPS for ascending batch sizes from 1 on, as in "
                "'1:5 4:3 16:0', with several steps where SGLang may choose ('1:1,3,5 8:0,1')"
            )
        return cls(slots)

    def __str__(self) -> str:
        return " ".join(f"{size}:{','.join(map(str, steps))}" for size, steps in self.slots)

    @classmethod
    def of(cls, option: str) -> AdaptivePolicy:
        """The policy that a config's ``adaptive`` names: one of its own, or ``default``, SGLang's.

        Raises:
            ValueError: it is neither.
        """
        return BUILT_IN if option == SGLANG_DEFAULT else cls.parse(option)

    @property
    def steps(self) -> tuple[int, ...]:
        """Every chain length that may run, ascending."""
        return tuple(sorted({step for _, steps in self.slots for step in steps}))

    def file_text(self) -> str:
        """The JSON that ``--speculative-adaptive-config`` takes."""
        slots = [f'  "{size}": {{"candidate_steps": {json.dumps(steps)}}}' for size, steps in self.slots]
        return "{\n" + ",\n".join(slots) + "\n}\n"


BUILT_IN = AdaptivePolicy.parse("1:1,3,5,7 8:0,1,3 32:0,1 64:0")
"""What SGLANG_DEFAULT stands for, by SGLang 0.5.23."""


def policy_of_best(best: Sequence[tuple[int, int]]) -> AdaptivePolicy:
    """From (concurrency, best steps) per load, ascending: each holds up to the geometric middle to the next load.

    >>> str(policy_of_best([(1, 5), (4, 3), (16, 0)]))
    '1:5 2:3 8:0'
    """
    slots: list[tuple[int, tuple[int, ...]]] = []
    for index, (concurrency, steps) in enumerate(best):
        before = best[index - 1][0] if index else 0
        start = max(before + 1, round((before * concurrency) ** 0.5)) if before else 1
        if not slots or slots[-1][1] != (steps,):
            slots.append((start, (steps,)))
    return AdaptivePolicy(tuple(slots))
