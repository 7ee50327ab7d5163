"""Bookkeeping of KV-cache slots around a speculative step; all but one function write in place.

``req_to_token`` [rows, pool_len] holds the slots of each request's tokens, in order.
"""

import ctypes

import torch
from torch import Tensor


def _spans(rows: Tensor, start: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
    """Row and column of every place in [start, end) of each row, one row after the other."""
    counts = (end - start).long()
    first = counts.cumsum(0) - counts
    columns = torch.arange(int(counts.sum())) + (start.long() - first).repeat_interleave(counts)
    return rows.long().repeat_interleave(counts), columns


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start: Tensor,
    end: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write each request's new slots into its row of the token table."""
    rows, columns = _spans(req_pool_indices, start, end)
    req_to_token[rows, columns] = out_cache_loc[: len(rows)].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start: Tensor,
    end: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Read the slots [start, end) of each request's row, packed one request after the other."""
    rows, columns = _spans(req_pool_indices, start, end)
    out_cache_loc[: len(rows)] = req_to_token[rows, columns].to(out_cache_loc.dtype)


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read the ``topk * num_steps`` slots that follow each request's committed tokens."""
    end = seq_lens + topk * num_steps
    assign_extend_cache_locs_cpu(req_pool_indices, req_to_token, seq_lens, end, out_cache_loc, pool_len)


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor, req_pool_indices: Tensor, seq_lens: Tensor, topk: int, num_steps: int, pool_len: int
) -> Tensor:
    """Token table for draft decoding: one row per branch, its prefix followed by its own draft slots.

    The result is only as wide as the longest row needs; ``num_steps`` slots of a branch are adjacent in
    the request's row, the branches one after the other.
    """
    width = min(int(seq_lens.max()) + num_steps, pool_len)
    columns = torch.arange(width)
    prefix = seq_lens.long()[:, None, None]
    shift = (torch.arange(topk) * num_steps)[:, None]
    source = columns + torch.where(columns < prefix, 0, shift)  # [requests, topk, width]
    # Past a row's own end there is nothing to read, only the padding to the longest row.
    source = source.clamp_(max=pool_len - 1)
    return req_to_token[req_pool_indices[:, None, None], source].flatten(0, 1)


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor
) -> None:
    """Pack the slots of the accepted tokens (index -1: none) at the front of the result."""
    index = accept_index.reshape(-1)
    index = index[index != -1].long()
    accept_out_cache_loc[: len(index)] = out_cache_loc[index]


def fill_bonus_tokens_cpu(
    accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int
) -> None:
    """The last accepted token of each request (``accept_lens`` counts it)."""
    rows = torch.arange(len(accept_lens)) * accept_stride
    bonus_tokens.copy_(accept_tokens.reshape(-1)[rows + accept_lens.long() - 1])


def rotate_input_ids_cpu(
    input_ids: Tensor,
    start_loc: Tensor,
    seq_lens: Tensor,
    new_tokens: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift each request's tokens one to the left and put its new token in the freed place."""
    new_tokens = new_tokens.reshape(-1)
    for i, (start, length) in enumerate(zip(start_loc.tolist(), seq_lens.tolist(), strict=True)):
        if length > 0:
            end = start + length
            input_ids[start : end - 1] = input_ids[start + 1 : end].clone()
            last = end - 1 if select_index is None else int(select_index[i])
            input_ids[last] = new_tokens[i]


def copy_all_layer_kv_cache_cpu(data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor) -> None:
    """Move cache rows from ``src_loc`` to ``tgt_loc`` in the buffers at the addresses ``data_ptrs``.

    ``strides`` are the bytes of one row.  All sources are read before the first target is written.
    """
    if len(src_loc) == 0:
        return
    source, target = src_loc.long(), tgt_loc.long()
    rows = int(torch.maximum(source.max(), target.max())) + 1
    for address, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        memory = (ctypes.c_uint8 * (rows * stride)).from_address(address)
        buffer = torch.frombuffer(memory, dtype=torch.uint8).view(rows, stride)
        buffer.index_copy_(0, target, buffer.index_select(0, source))
