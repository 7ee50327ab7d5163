"""Attention over SGLang's token-granular KV cache, registered as ``torch.ops.sgl_kernel.*_cpu``.

Shapes: R requests, n new tokens and m tokens in all of a request, H query heads, HKV key/value heads,
D values per head.  Everything is computed in float32, so that a token scores the same, up to the order
of a few additions, whether it is decoded alone or verified in a batch.
"""

import torch
from torch import Tensor
from torch.nn import functional

_LIB = torch.library.Library("sgl_kernel", "DEF")


def _reject(**features: object) -> None:
    """Refuse features that this stand-in leaves out instead of computing something wrong."""
    used = [name for name, value in features.items() if value]
    if used:
        raise NotImplementedError(f"sgl_kernel stand-in: {', '.join(used)} not supported")


def _read(buffer: Tensor, slots: Tensor) -> Tensor:
    """Cache rows ``slots`` [R, m] of ``buffer`` [slots, HKV, D] in float32, [R, m, HKV, D].

    ``index_select`` copies whole rows; indexing with brackets takes twice as long here.
    """
    return buffer.index_select(0, slots.view(-1)).view(*slots.shape, *buffer.shape[1:]).float()


def _attend(query: Tensor, keys: Tensor, values: Tensor, visible: Tensor, scale: float) -> Tensor:
    """``query`` [R, n, H, D] against ``keys``/``values`` [R, m, HKV, D]; ``visible`` bool [R, n, m]."""
    result = functional.scaled_dot_product_attention(
        query.float().transpose(1, 2),
        keys.transpose(1, 2),
        values.transpose(1, 2),
        attn_mask=visible[:, None],
        scale=scale,
        enable_gqa=query.shape[2] != keys.shape[2],
    )
    return result.transpose(1, 2)


def decode_attention_cpu(
    query: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    output: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    loc: Tensor,
    attn_logits: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
) -> None:
    """One new token per request: store its K/V at ``loc``, then attend to all ``seq_lens`` tokens."""
    _reject(
        cross_attention=is_cross_attn, encoder_lens=encoder_lens is not None, sinks=sinks is not None,
        logit_cap=logit_cap > 0, sliding_window=sliding_window > 0,
    )  # fmt: skip
    if key is not None and value is not None:
        k_buffer[loc] = key.view(-1, *k_buffer.shape[1:]).to(k_buffer.dtype)
        v_buffer[loc] = value.view(-1, *v_buffer.shape[1:]).to(v_buffer.dtype)
    longest = int(seq_lens.max())
    slots = req_to_token[req_pool_indices, :longest]
    visible = torch.arange(longest) < seq_lens[:, None]
    keys, values = _read(k_buffer, slots), _read(v_buffer, slots)
    output.copy_(_attend(query[:, None], keys, values, visible[:, None], scale)[:, 0])


def _extend(
    query: Tensor,
    new_keys: Tensor | None,
    new_values: Tensor | None,
    k_buffer: Tensor,
    v_buffer: Tensor,
    slots: Tensor,
    lengths: Tensor,
    tree: Tensor | None,
    is_causal: bool,
    scale: float,
) -> Tensor:
    """Requests with equally many new tokens; ``query`` [R, n, H, D], ``slots`` [R, m], ``tree`` [R, n, n]."""
    requests, new, (longest,) = len(query), query.shape[1], slots.shape[1:]
    keys, values = _read(k_buffer, slots), _read(v_buffer, slots)
    rows = torch.arange(requests)[:, None]
    own = lengths[:, None] - new + torch.arange(new)  # [R, n]: places of the new tokens
    if new_keys is not None and new_values is not None:  # not in the buffers for certain
        keys[rows, own] = new_keys.view(requests, new, *keys.shape[2:]).float()
        values[rows, own] = new_values.view(requests, new, *values.shape[2:]).float()
    place = torch.arange(longest)
    if tree is not None:
        visible = (place < own[:, :1]).unsqueeze(1).repeat(1, new, 1)
        visible[rows[:, None], torch.arange(new)[:, None], own[:, None]] = tree
    else:
        visible = place <= (own if is_causal else own[:, -1:].expand(-1, new))[:, :, None]
    return _attend(query, keys, values, visible, scale)


def extend_attention_cpu(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    output: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_extend_len: int,
    scale: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
    tree_mask: Tensor | None,
    is_causal: bool,
) -> None:
    """The last ``extend_seq_lens`` tokens of each request attend to its prefix and to each other.

    Visibility among the new tokens is causal, full (``is_causal`` false) or ``tree_mask``: bool
    [R * n * n], row i marking the new tokens that new token i may see.
    """
    _reject(
        cross_attention=is_cross_attn, encoder_lens=encoder_lens is not None, sinks=sinks is not None,
        logit_cap=logit_cap > 0, sliding_window=sliding_window > 0,
    )  # fmt: skip
    extends, lengths = extend_seq_lens.tolist(), seq_lens.tolist()
    even = len(set(extends)) == 1
    # Verification has equal extends and takes one batch; prompts of several lengths go one by one.
    batches = [slice(0, len(extends))] if even else [slice(i, i + 1) for i in range(len(extends))]
    first = tree_first = 0
    for batch in batches:
        requests, new = batch.stop - batch.start, extends[batch.start]
        tokens = slice(first, first + requests * new)
        tree = None
        if tree_mask is not None:
            size = requests * new * new
            tree = tree_mask.view(-1)[tree_first : tree_first + size].view(requests, new, new).bool()
            tree_first += size
        result = _extend(
            query[tokens].view(requests, new, *query.shape[1:]),
            None if key is None else key[tokens],
            None if value is None else value[tokens],
            k_buffer,
            v_buffer,
            req_to_token[req_pool_indices[batch], : max(lengths[batch])],
            seq_lens[batch],
            tree,
            is_causal,
            scale,
        )
        output[tokens] = result.flatten(0, 1).to(output.dtype)
        first = tokens.stop


_LIB.define(
    "decode_attention_cpu(Tensor query, Tensor(a!) k_buffer, Tensor(b!) v_buffer, float k_scale, "
    "float v_scale, Tensor(c!) output, Tensor? key, Tensor? value, Tensor loc, Tensor attn_logits, "
    "Tensor req_to_token, Tensor req_pool_indices, Tensor seq_lens, float scale, float logit_cap, "
    "bool is_cross_attn, int sliding_window, Tensor? encoder_lens, Tensor? sinks) -> ()"
)
_LIB.define(
    "extend_attention_cpu(Tensor query, Tensor? key, Tensor? value, Tensor(a!) output, "
    "Tensor k_buffer, Tensor v_buffer, float k_scale, float v_scale, Tensor req_to_token, "
    "Tensor req_pool_indices, Tensor seq_lens, Tensor extend_seq_lens, Tensor extend_start_loc, "
    "int max_extend_len, float scale, float logit_cap, bool is_cross_attn, int sliding_window, "
    "Tensor? encoder_lens, Tensor? sinks, Tensor? tree_mask, bool is_causal) -> ()"
)
_LIB.impl("decode_attention_cpu", decode_attention_cpu, "CPU")
_LIB.impl("extend_attention_cpu", extend_attention_cpu, "CPU")
