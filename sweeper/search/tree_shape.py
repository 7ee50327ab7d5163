"""The shape of a draft tree, before any server runs: how much more likely than a chain each depth is to be right."""

from __future__ import annotations

import heapq
from functools import lru_cache

SHARES = tuple(0.55 * 0.36**i + 0.02 * (i > 0) for i in range(64))
"""A typical draft's confidence in its best guess, its second, ...: only how the tree is shaped hangs on them."""


@lru_cache(maxsize=20_000)
def reach(num_steps: int, topk: int, num_draft_tokens: int) -> tuple[float, ...]:
    """W_1 ... W_depth: the confidence in all nodes of a depth together, over that in a chain's one node there.

    As SGLang builds it: the first step proposes ``topk`` tokens; each later one ``topk`` children for each of the
    ``topk`` best nodes of the last; the ``num_draft_tokens`` - 1 best nodes of all are verified. A chain has 1
    everywhere.

    >>> reach(3, 1, 4)
    (1.0, 1.0, 1.0)
    """
    best = SHARES[0]
    shares = SHARES[:topk]
    frontier = list(shares)
    pool = [(share, 1) for share in frontier]
    for depth in range(2, num_steps + 1):
        children = [parent * share for parent in frontier for share in shares]
        pool += [(child, depth) for child in children]
        frontier = heapq.nlargest(topk, children)
    sums = [0.0] * (num_steps + 1)
    for confidence, depth in heapq.nlargest(num_draft_tokens - 1, pool):
        sums[depth] += confidence / best**depth
    return tuple(total for total in sums[1:] if total)
