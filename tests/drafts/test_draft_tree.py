"""Draft trees at every position at once, against one tree at a time, grown as a server grows it."""

import pytest
import torch
from torch import Tensor

from sweeper.drafts.draft_tree import Passage, TreeSize, text_ranks
from sweeper.drafts.eagle3 import Eagle3Head, attend_chain
from tests.testbed.test_eagle3 import SIZE, new_head

EMBEDDING = torch.randn(40, SIZE, generator=torch.Generator().manual_seed(3))
START = 5


def embed(ids: Tensor) -> Tensor:
    return EMBEDDING[ids]


def confident_head() -> Eagle3Head:
    """A random head whose probabilities differ enough for trees of several shapes."""
    head = new_head()
    torch.manual_seed(1)
    for weight in head.parameters():
        weight.normal_(0, 0.6)
    head.d2t = torch.arange(20)
    return head


def text(head: Eagle3Head) -> Passage:
    """A text of pieces of three tokens that the head would guess, or would nearly guess."""
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(60, 3 * SIZE, generator=generator)
    ids = torch.randint(0, 40, (START + 1,), generator=generator)
    while len(ids) < 39:
        known = len(ids) - 1
        for step in range(3):
            logits = head.unroll(features[None, :known], embed(ids[None, 1:]), step + 1)[step][0, -1]
            rank = int(torch.randint(0, 3, (1,), generator=generator)) // 2
            ids = torch.cat((ids, head.target_ids(logits.topk(2).indices[rank : rank + 1])))
    return Passage(ids, features[: len(ids)], START)


def accepted_by_one_tree(head: Eagle3Head, passage: Passage, last: int, shape: tuple[int, int, int]) -> int:
    """Drafts accepted where the token at ``last`` is the last known one; one node at a time, in plain lists."""
    steps, topk, n = shape
    pairs = torch.arange(last)
    hidden = head.fuse(passage.features[:last])[None]
    q, k, v = head.project(embed(passage.ids[None, 1 : last + 1]), hidden, pairs)
    first = head.advance(hidden[:, -1:], attend_chain(q[:, :, -1:], q[:, :, -1:] @ k.mT, [k], [v]))[0, 0]
    rows: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(topk)]

    def forward(token: int, state: Tensor, position: int, own: list[tuple[Tensor, Tensor]]) -> Tensor:
        q, key, value = head.project(
            EMBEDDING[token][None, None], state[None, None], torch.tensor([position])
        )
        own.append((key, value))
        keys, values = [k, *(o[0] for o in own)], [v, *(o[1] for o in own)]
        return head.advance(state[None, None], attend_chain(q, q @ k.mT, keys, values))[0, 0]

    nodes: list[tuple[float, int, int, int]] = []  # score, parent, token, level
    chance, ids = head.logits(first).softmax(-1).topk(topk)
    frontier = []
    for c, i in zip(chance, head.target_ids(ids), strict=True):
        nodes.append((float(c), -1, int(i), 1))
        frontier.append((len(nodes) - 1, float(c), first))
    for level in range(2, steps + 1):
        children = []
        for row, (node, score, state) in enumerate(frontier):
            output = forward(nodes[node][2], head.fed_back(state), last + level - 2, rows[row])
            chance, ids = head.logits(output).softmax(-1).topk(topk)
            for c, i in zip(chance, head.target_ids(ids), strict=True):
                nodes.append((score * float(c), node, int(i), level))
                children.append((len(nodes) - 1, score * float(c), output))
        frontier = sorted(children, key=lambda child: -child[1])[:topk]
    kept = set(sorted(range(len(nodes)), key=lambda i: -nodes[i][0])[: n - 1])
    at, accepted = -1, 0
    while last + accepted + 1 < len(passage.ids):
        token = int(passage.ids[last + accepted + 1])
        match = [i for i in kept if nodes[i][1] == at and nodes[i][2] == token]
        if not match:
            break
        at, accepted = match[0], accepted + 1
    return accepted


@pytest.mark.parametrize("topk", [1, 2, 4])
def test_all_trees_of_a_pass_accept_what_each_tree_alone_accepts(topk: int) -> None:
    head = confident_head()
    passage = text(head)
    ranks = text_ranks(head, embed, passage, TreeSize(4, topk))
    assert ranks.shape == (39 - 1 - START, 4, 4)
    seen = set()
    for steps in (1, 2, 4):
        capacity = topk + (steps - 1) * topk**2
        sizes = [steps + 1] if topk == 1 else sorted({4, capacity // 2 + 1, capacity + 1})
        for n in sizes:
            for p in range(0, len(ranks), 3 * topk):
                row = ranks[p, steps - 1, :steps]
                accepted = int(((row > 0) & (row < n)).int().cumprod(0).sum())
                assert accepted == accepted_by_one_tree(head, passage, START + p, (steps, topk, n))
                seen.add(accepted)
    assert len(seen) > 2  # the test would be empty if nothing were ever accepted


def test_nothing_is_accepted_behind_the_end_of_the_text() -> None:
    head = confident_head()
    ranks = text_ranks(head, embed, text(head), TreeSize(4, 2))
    assert not ranks[-1, :, 1:].any()
