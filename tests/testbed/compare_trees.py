"""Compares the stand-in's tree operators with SGLang's own Triton kernels, run by Triton's interpreter.

A script, run by ``test_trees.py`` in a process of its own: it needs the real triton, TRITON_INTERPRET=1 and
the stand-in ``sgl_kernel`` behind it on the path.  Prints the number of trees compared.
"""

import sgl_kernel as ours
import torch
from sglang.kernels.ops.speculative import reconstruct_tree, spec_tree
from sglang.srt.speculative.eagle_utils import organize_draft_results
from sglang.srt.speculative.spec_utils import select_top_k_tokens
from torch import Tensor

TRIALS, VOCABULARY = 30, 30
MODE = spec_tree.TreeMaskMode.QLEN_ONLY


def integer(low: int, high: int) -> int:
    """Random, ``high`` included."""
    return int(torch.randint(low, high + 1, ()))


def draft(requests: int, topk: int, steps: int, nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Parents, selected candidates and tokens of a random draft, by SGLang's own selection."""
    hidden, scores = torch.zeros(requests, 4), None
    results: list[tuple[Tensor, Tensor, Tensor]] = []
    probabilities, ids = torch.rand(requests, VOCABULARY).softmax(-1).topk(topk)
    for step in range(steps):
        _, hidden, scores, info = select_top_k_tokens(step, probabilities, ids, hidden, scores, topk)
        results.append(info)
        probabilities, ids = torch.randn(requests * topk, VOCABULARY).softmax(-1).topk(topk)
        hidden = torch.zeros(requests * topk, 4)
    parents, selected, tokens = organize_draft_results(*map(list, zip(*results, strict=True)), nodes)
    return parents, selected, tokens


def tree_buffers(requests: int, nodes: int) -> list[Tensor]:
    """Mask, positions, and the three link tables, as SGLang allocates them."""
    mask = torch.ones(requests * nodes * nodes, dtype=torch.bool)
    links = torch.full((3, requests, nodes), -1, dtype=torch.long)
    return [mask, torch.zeros(requests * nodes, dtype=torch.long), *links]


def verify_buffers(requests: int, nodes: int, steps: int) -> list[Tensor]:
    """Predictions, accepted nodes, and their number."""
    accepted = torch.full((requests, steps + 1), -1, dtype=torch.int32)
    return [
        torch.zeros(requests * nodes, dtype=torch.int32),
        accepted,
        torch.zeros(requests, dtype=torch.int32),
    ]


def often_agreeing(candidates: Tensor, first_child: Tensor, sibling: Tensor) -> Tensor:
    """Tokens of a target that often equal one of a node's children."""
    target = torch.randint(0, VOCABULARY, candidates.shape)
    for row in range(candidates.shape[0]):
        for node in range(candidates.shape[1]):
            child = int(first_child[row, node])
            if child < 0 or torch.rand(()) < 0.2:
                continue
            next_child = int(sibling[row, child])
            if next_child >= 0 and torch.rand(()) < 0.4:
                child = next_child
            target[row, node] = candidates[row, child]
    return target


def assert_equal(actual: list[Tensor], expected: list[Tensor], what: str) -> None:
    for index, (a, b) in enumerate(zip(actual, expected, strict=True)):
        assert torch.equal(a, b), f"{what}, result {index}: {a} against {b}"


def compare_one() -> None:
    topk, steps, requests = integer(1, 4), integer(2, 5), integer(1, 4)
    nodes = steps + 1 if topk == 1 else integer(2, min(1 + topk + (steps - 1) * topk**2, 24))
    case = f"topk {topk}, {steps} steps, {nodes} nodes, {requests} requests"
    parents, selected, tokens = draft(requests, topk, steps, nodes)
    lengths = torch.randint(1, 50, (requests,))

    mine, theirs = tree_buffers(requests, nodes), tree_buffers(requests, nodes)
    ours.build_tree_kernel_efficient_cpu(parents, selected, lengths, *mine, topk, steps, nodes, MODE)
    spec_tree.sgl_build_tree_kernel_triton(parents, selected, lengths, *theirs, topk, steps, nodes, MODE)
    assert_equal(mine, theirs, f"build, {case}")

    mask, _, flat, first_child, sibling = mine
    mine, theirs = tree_buffers(requests, nodes)[1:], tree_buffers(requests, nodes)[1:]
    ours.reconstruct_indices_from_tree_mask(mask, lengths, *mine, requests, nodes)
    reconstruct_tree.reconstruct_indices_from_tree_mask_triton(mask, lengths, *theirs, requests, nodes)
    assert_equal(mine, theirs, f"reconstruct, {case}")

    candidates = torch.cat([torch.randint(0, VOCABULARY, (requests, 1)), tokens], dim=1)
    target = often_agreeing(candidates, first_child, sibling)
    mine, theirs = verify_buffers(requests, nodes, steps), verify_buffers(requests, nodes, steps)
    ours.verify_tree_greedy_cpu(*mine, candidates, flat, first_child, sibling, target)
    spec_tree.verify_tree_greedy_triton(*theirs, candidates, flat, first_child, sibling, target)
    assert_equal(mine, theirs, f"verify, {case}")


if __name__ == "__main__":
    torch.manual_seed(0)
    for _ in range(TRIALS):
        compare_one()
    print(TRIALS)
