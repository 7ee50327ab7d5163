"""An EAGLE-3 draft together with the wiring that SGLang gives it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sweeper.drafts.eagle3 import Eagle3Error, Eagle3Head
from sweeper.drafts.target import Target
from sweeper.drafts.wiring import Tap, Wiring, served_wiring


@dataclass(frozen=True)
class ServedDraft:
    """The head, in float32 on the target's device, and the taps that SGLang would feed it."""

    head: Eagle3Head
    wiring: Wiring

    @classmethod
    def load(cls, directory: Path, target: Target) -> ServedDraft:
        """Read a checkpoint.

        Raises:
            Eagle3Error: it is no EAGLE-3 checkpoint, is incomplete, or does not fit the target.
        """
        head = Eagle3Head.load(directory).to(target.device).eval().requires_grad_(False)
        wiring = served_wiring(head.config.raw, target.layers, target.architecture)
        wanted = head.config.target_hidden_size
        if wanted != target.width:
            raise Eagle3Error(
                f"{directory}: made for hidden states of {wanted}, the target has {target.width}"
            )
        count = head.config.num_aux_hidden_states
        if len(wiring.taps) != count:
            raise Eagle3Error(
                f"{directory}: reads {count} hidden states, but SGLang would capture {len(wiring.taps)} for its layer "
                f"ids, {wiring.name(target.layers)}: ids must be different and below the last layer's"
            )
        return cls(head, wiring)

    def features(self, states: Mapping[Tap, Tensor]) -> Tensor:
        """[L, A * h] from the states [L, h] of a text."""
        return torch.cat([states[tap] for tap in self.wiring.taps], dim=-1)
