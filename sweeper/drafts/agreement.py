"""How often a draft proposes what the target chooses, by draft position, for one wiring.

Shapes: L tokens of a text, P = L - 2 pairs (feature i, token i+1), depth d draft steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sweeper.acceptance import expected_accept_length
from sweeper.drafts.acceptance_map import walked_rounds
from sweeper.drafts.eagle3 import Eagle3Head
from sweeper.drafts.wiring import Tap, Wiring

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Text:
    """A text with what the target made of it.

    ``ids`` [L]; ``states`` [L, h] by tap; ``choices`` [L]: the token that the target chooses after each. Drafting is
    judged where the last known token is an ``answer`` [L] one. A text that is the target's own greedy output has
    ``choices`` equal to the next ids.
    """

    ids: Tensor
    states: Mapping[Tap, Tensor]
    choices: Tensor
    answer: Tensor


@dataclass(frozen=True)
class Counted:
    """Counts of one text, or sums of several.

    By draft position [depth]: ``reached`` are the chains whose earlier proposals were all right, and ``accepted`` those
    of them that are right here, too; ``tried`` and ``agreed`` count every chain, on the true text before it, which is
    what a training reports. ``tokens`` and ``rounds`` are those of walking the text as decoding would.
    """

    reached: Counts
    accepted: Counts
    tried: Counts
    agreed: Counts
    tokens: int
    rounds: int

    @property
    def conditional(self) -> list[float]:
        """Acceptance among the chains that came so far; ends where none did."""
        return [float(a / r) for a, r in zip(self.accepted, self.reached, strict=True) if r]

    @property
    def marginal(self) -> list[float]:
        """Share of all chains that are right up to here."""
        return list(accumulate(self.conditional, lambda a, b: a * b))

    @property
    def on_true_text(self) -> list[float]:
        """Agreement whatever the earlier proposals were."""
        return [float(a / t) for a, t in zip(self.agreed, self.tried, strict=True) if t]

    @property
    def expected_accept_length(self) -> float:
        """What these acceptances promise: 1 + Σ marginal."""
        return expected_accept_length(self.conditional)


def total(parts: Sequence[Counted]) -> Counted:
    """The counts of several texts together."""

    def summed(name: str) -> Counts:
        sums: Counts = np.sum([getattr(part, name) for part in parts], axis=0, dtype=np.int64)
        return sums

    return Counted(
        summed("reached"),
        summed("accepted"),
        summed("tried"),
        summed("agreed"),
        sum(part.tokens for part in parts),
        sum(part.rounds for part in parts),
    )


def rewired(head: Eagle3Head, wiring: Wiring) -> Eagle3Head:
    """The same head, feeding back what the wiring says; the weights are shared."""
    other = copy.copy(head)
    other.config = replace(head.config, norm_output=wiring.feedback_normed)
    return other


@torch.no_grad()
def agreement(
    head: Eagle3Head, embed: Callable[[Tensor], Tensor], text: Text, wiring: Wiring, depth: int
) -> Counted:
    """Run ``depth`` draft steps from everywhere in a text."""
    pairs = len(text.ids) - 2
    features = torch.cat([text.states[tap][:pairs] for tap in wiring.taps], dim=-1)
    ids = torch.cat((text.ids, text.ids.new_zeros(depth)))
    logits = rewired(head, wiring).unroll(features[None], embed(ids[None, 1 : pairs + depth]), depth)
    guesses = torch.stack([head.target_ids(step[0].argmax(-1)) for step in logits], dim=1)  # [P, d]
    return _count(guesses.cpu().numpy(), text)


def _count(guesses: Counts, text: Text) -> Counted:
    pairs, depth = guesses.shape
    ids, choices = text.ids.cpu().numpy(), text.choices.cpu().numpy()
    # Step j of pair i proposes token i+2+j, chosen after token i+1+j; behind the end nothing is known.
    after = np.arange(pairs)[:, None] + 1 + np.arange(depth)
    inside = after < len(ids) - 1
    after = np.minimum(after, len(ids) - 2)
    judged = text.answer.cpu().numpy()[1 : pairs + 1, None] & inside
    right = (guesses == choices[after]) & inside
    follows = choices[after] == ids[after + 1]  # else the true text is no continuation of these proposals
    chain = np.logical_and.accumulate(right & follows, axis=1)
    before = np.concatenate((np.ones((pairs, 1), bool), chain[:, :-1]), axis=1)
    reached = judged & before
    accepted = reached & right
    tokens, rounds = _walk(1 + np.logical_and.accumulate(right, axis=1).sum(axis=1), judged[:, 0])
    return Counted(
        reached.sum(axis=0),
        accepted.sum(axis=0),
        judged.sum(axis=0),
        (right & judged).sum(axis=0),
        tokens,
        rounds,
    )


def _walk(advances: Counts, judged: NDArray[np.bool_]) -> tuple[int, int]:
    """Tokens and verify rounds over every stretch of judged positions."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], judged.astype(np.int8), [0]))))
    lengths = edges[1::2] - edges[::2]
    return int(lengths.sum()), int(walked_rounds(advances[judged], lengths).sum())
