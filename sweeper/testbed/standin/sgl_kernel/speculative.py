"""Building and greedy verification of the draft token tree.  All functions write in place.

A request's tree has n nodes; node 0 is the last committed token, the others are draft tokens.
``retrieve_next_token`` holds each node's first child and ``retrieve_next_sibling`` its next
sibling, -1 where there is none.
"""

import torch
from torch import Tensor

QLEN_ONLY = 1  # sglang.kernels.ops.speculative.spec_tree.TreeMaskMode.QLEN_ONLY


def _link(parents: list[int], retrieve_next_token: Tensor, retrieve_next_sibling: Tensor) -> None:
    """Turn a list of parents (of nodes 1, 2, ...) into first-child and next-sibling links."""
    for node in range(len(parents), 0, -1):
        parent = parents[node - 1]
        retrieve_next_sibling[node] = retrieve_next_token[parent]
        retrieve_next_token[parent] = node


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Build the tree of the selected candidates.

    ``selected_index`` [batch, n-1] numbers the chosen candidates over all draft steps.  Candidate c
    belongs to expansion c // topk; expansion 0 hangs on the root, expansion e > 0 on the candidate
    ``parent_list[batch, e]``.
    """
    if int(tree_mask_mode) != QLEN_ONLY:
        raise NotImplementedError(f"sgl_kernel stand-in: tree mask mode {tree_mask_mode}")
    n = draft_token_num
    masks, pos = tree_mask.view(-1)[: len(verified_seq_len) * n * n].view(-1, n, n), positions.view(-1, n)
    for b, length in enumerate(verified_seq_len.tolist()):
        chosen = selected_index[b].tolist()
        node_of = {candidate: i + 1 for i, candidate in enumerate(chosen)}
        parents, depths, mask = [], [0], torch.eye(n, dtype=torch.bool)
        mask[:, 0] = True
        for node, candidate in enumerate(chosen, start=1):
            expansion = candidate // topk
            parent = node_of[int(parent_list[b, expansion])] if expansion else 0
            parents.append(parent)
            depths.append(depths[parent] + 1)
            mask[node] |= mask[parent]
        masks[b] = mask
        pos[b] = length + torch.tensor(depths)
        retrieve_index[b] = b * n + torch.arange(n)
        _link(parents, retrieve_next_token[b], retrieve_next_sibling[b])


def reconstruct_indices_from_tree_mask(
    tree_mask: Tensor,
    verified_seq_len: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    batch_size: int,
    draft_token_num: int,
) -> None:
    """Recover positions and links from a tree mask (row i marks the ancestors of node i)."""
    n = draft_token_num
    masks = tree_mask.view(-1)[: batch_size * n * n].view(batch_size, n, n).bool()
    for b, length in enumerate(verified_seq_len.tolist()):
        ancestors = masks[b].tril(-1)
        positions.view(-1, n)[b] = length + ancestors.sum(1)
        retrieve_index[b] = b * n + torch.arange(n)
        retrieve_next_token[b] = retrieve_next_sibling[b] = -1
        parents = [max([0, *row.nonzero().flatten().tolist()]) for row in ancestors[1:]]
        _link(parents, retrieve_next_token[b], retrieve_next_sibling[b])


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walk down the tree while a child equals the target's token.

    ``predicts`` gets the target's token at each accepted node, ``accept_index`` the accepted nodes
    (flat over the batch) and ``accept_token_num`` the number of accepted draft tokens.
    """
    for b in range(len(candidates)):
        drafts, target = candidates[b].tolist(), target_predict[b].tolist()
        flat, first = retrive_index[b].tolist(), retrive_next_token[b].tolist()
        sibling = retrive_next_sibling[b].tolist()
        node, path = 0, [0]
        while len(path) < accept_index.shape[1]:
            child = first[node]
            while child != -1 and drafts[child] != target[node]:
                child = sibling[child]
            if child == -1:
                break
            node = child
            path.append(node)
        for i, node in enumerate(path):
            accept_index[b, i] = flat[node]
            predicts[flat[node]] = target[node]
        accept_token_num[b] = len(path) - 1
