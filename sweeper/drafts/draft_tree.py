"""The draft trees that SGLang would build at every position of a text, and how much of the text each would accept.

SGLang expands the ``topk`` best nodes of a level by ``topk`` children each. A node's score is the product of the
probabilities on its path; a tree of n draft tokens keeps the n-1 best nodes of all levels (Li et al., "EAGLE-2: Faster
Inference of Language Models with Dynamic Draft Trees", 2024). The tree for fewer steps is the same tree, cut
off; the one for fewer tokens takes fewer of its nodes. So one pass at the most steps serves all of them. It does not
serve a smaller ``topk``, since a row of the draft's cache belongs to a rank, not to a path: a node attends to
the keys that *its rank* wrote at the levels before, whoever stood there.

Shapes: L tokens of a text, P positions to draft from, k topk, S steps, h hidden size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sweeper.drafts.eagle3 import Eagle3Head, attend_chain
from sweeper.drafts.layers import causal_scores

_POSITIONS_AT_ONCE = 256
_HIDDEN = -1e4
_MOST = torch.iinfo(torch.int16).max


@dataclass(frozen=True)
class TreeSize:
    """The largest tree: ``num_steps`` levels, ``topk`` children per expanded node."""

    num_steps: int
    topk: int


@dataclass(frozen=True)
class Passage:
    """A text with what an EAGLE-3 draft reads of it.

    ``ids`` [L]; ``features`` [L, A * h]; drafting starts once the token at ``start`` is known, with the one after it.
    """

    ids: Tensor
    features: Tensor
    start: int


@torch.no_grad()
def text_ranks(
    head: Eagle3Head, embed: Callable[[Tensor], Tensor], passage: Passage, size: TreeSize
) -> Tensor:
    """Ranks [P, S, S] (int16) of the text's own next tokens in the trees of every position.

    Entry [p, s-1, d-1]: with the token at ``start`` + p as the last known one, the d-th token after it is the best,
    second best, ... node of a tree of s steps; 0 where the tree does not hold it. A tree of n draft tokens
    accepts it if the rank is between 1 and n-1. P = L - 1 - ``start``.
    """
    ids, first = passage.ids, passage.start - 1
    pairs = len(ids) - 2  # (feature i, token i+1), i = 0..L-3, predicts token i+2
    hidden = head.fuse(passage.features[:pairs])[None]
    q, k, v = head.project(embed(ids[1 : pairs + 1])[None], hidden, torch.arange(pairs, device=ids.device))
    output = head.advance(hidden, attend_chain(q, causal_scores(q, k), [k], [v]))
    ranks = [
        _Level(head, embed, size, (k, v)).ranks(
            output[0, chunk], chunk, _next_tokens(ids, chunk, size.num_steps)
        )
        for chunk in torch.arange(first, pairs, device=ids.device).split(_POSITIONS_AT_ONCE)
    ]
    return torch.cat(ranks)


def _next_tokens(ids: Tensor, pairs: Tensor, steps: int) -> Tensor:
    """[P, S]: the tokens that pair i and its chain have to predict, i+2, i+3, ...; -1 behind the text's end."""
    padded = torch.cat((ids, ids.new_full((steps,), -1)))
    return padded[pairs[:, None] + 2 + torch.arange(steps, device=ids.device)]


class _Level:
    """Grows the trees of some positions level by level, with the committed keys and values of the whole text."""

    def __init__(
        self,
        head: Eagle3Head,
        embed: Callable[[Tensor], Tensor],
        size: TreeSize,
        committed: tuple[Tensor, Tensor],
    ) -> None:
        self.head, self.embed, self.size = head, embed, size
        self.keys, self.values = [committed[0]], [committed[1]]

    def ranks(self, output: Tensor, pairs: Tensor, wanted: Tensor) -> Tensor:
        """``output`` [P, h] of the pairs; ``wanted`` [P, S]."""
        steps, topk = self.size.num_steps, self.size.topk
        rows = torch.arange(len(pairs), device=pairs.device)[:, None]
        chance, tokens = self._best(output)  # [P, k]
        scores = chance
        hidden = self.head.fed_back(output)[:, None].expand(-1, topk, -1)
        path = tokens == wanted[:, :1]  # [P, k]: the candidates that continue the text
        levels, found = [scores], [_of(scores, path)]
        parent = path
        for level in range(1, steps):
            output = self._step(tokens, hidden, pairs, level)
            chance, children = self._best(output)  # [P, k, k]
            spread = (scores[:, :, None] * chance).flatten(1)  # [P, k * k]
            path = (parent[:, :, None] & (children == wanted[:, level, None, None])).flatten(1)
            levels.append(spread)
            found.append(_of(spread, path))
            scores, chosen = spread.topk(topk)
            tokens = children.flatten(1).gather(1, chosen)
            hidden = self.head.fed_back(output)[rows, chosen // topk]
            parent = path.gather(1, chosen)
        return _ranks(levels, found)

    def _best(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities and target ids of the ``topk`` most likely tokens."""
        chance, ids = self.head.logits(output).softmax(-1).topk(self.size.topk)
        return chance, self.head.target_ids(ids)

    def _step(self, tokens: Tensor, hidden: Tensor, pairs: Tensor, level: int) -> Tensor:
        """Outputs [P, k, h] of the expanded nodes."""
        shape = hidden.shape
        last = pairs.repeat_interleave(self.size.topk)  # [P * k]
        flat = hidden.reshape(1, -1, shape[-1])
        q, k, v = self.head.project(self.embed(tokens.reshape(1, -1)), flat, last + level)
        self.keys.append(k)
        self.values.append(v)
        later = torch.arange(self.keys[0].shape[2], device=last.device) > last[:, None]
        committed = (q @ self.keys[0].mT).masked_fill(later, _HIDDEN)
        return self.head.advance(flat, attend_chain(q, committed, self.keys, self.values)).view(shape)


def _of(scores: Tensor, path: Tensor) -> tuple[Tensor, Tensor]:
    """Score and index [P] of the candidate that continues the text, at most one; score -1 where there is none."""
    index = path.int().argmax(1)
    score = scores.gather(1, index[:, None])[:, 0]
    return score.where(path.any(1), torch.full_like(score, -1.0)), index


def _ranks(levels: list[Tensor], found: list[tuple[Tensor, Tensor]]) -> Tensor:
    """[P, S, S] from the levels' scores [P, candidates] and the text's own candidates in them."""
    steps, positions = len(levels), len(levels[0])
    better = torch.zeros(
        positions, steps, steps, dtype=torch.int64, device=levels[0].device
    )  # [p, level, depth]
    for depth, (score, index) in enumerate(found):
        for level, scores in enumerate(levels):
            count = (scores > score[:, None]).sum(1)
            if (
                level == depth
            ):  # of equal scores the earlier one wins; an ancestor's equal score counts as better
                before = torch.arange(scores.shape[1], device=index.device) < index[:, None]
                count += ((scores == score[:, None]) & before).sum(1)
            elif level < depth:
                count += (scores == score[:, None]).sum(1)
            better[:, level, depth] = count
    ranks = 1 + better.cumsum(1)
    there = torch.stack([score >= 0 for score, _ in found], dim=1)  # [P, depth]
    deep_enough = torch.ones(steps, steps, dtype=torch.bool, device=ranks.device).tril()  # depth <= steps
    return (ranks * (there[:, None] & deep_enough)).clamp(max=_MOST).to(torch.int16)
