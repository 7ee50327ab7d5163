"""Slot bookkeeping on small tables that can be followed by eye."""

from types import ModuleType

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

POOL_LEN = 10


def table() -> torch.Tensor:
    """Row r, column c holds 100 r + c."""
    return (100 * torch.arange(3)[:, None] + torch.arange(POOL_LEN)).to(torch.int32)


def test_new_slots_go_behind_the_old_ones(ops: ModuleType) -> None:
    t = table()
    rows, start, end = torch.tensor([2, 0]), torch.tensor([1, 4]), torch.tensor([3, 7])
    ops.assign_req_to_token_pool_cpu(rows, t, start, end, torch.tensor([51, 52, 61, 62, 63]), POOL_LEN)
    assert t[2, :4].tolist() == [200, 51, 52, 203]
    assert t[0, 3:8].tolist() == [3, 61, 62, 63, 7]
    assert torch.equal(t[1], table()[1])


def test_slots_are_read_packed(ops: ModuleType) -> None:
    out = torch.full((6,), -1)
    rows, start, end = torch.tensor([2, 1, 0]), torch.tensor([1, 5, 8]), torch.tensor([3, 5, 10])
    ops.assign_extend_cache_locs_cpu(rows, table(), start, end, out, POOL_LEN)
    assert out.tolist() == [201, 202, 8, 9, -1, -1]


def test_draft_slots_follow_the_committed_tokens(ops: ModuleType) -> None:
    out = torch.full((8,), -1)
    lengths = torch.tensor([3, 5])
    ops.assign_draft_cache_locs_contiguous_cpu(
        torch.tensor([1, 0]), table(), lengths, out, POOL_LEN, topk=2, num_steps=2
    )
    assert out.tolist() == [103, 104, 105, 106, 5, 6, 7, 8]


def test_each_branch_sees_the_prefix_and_its_own_slots(ops: ModuleType) -> None:
    out = ops.build_draft_decode_metadata_cpu(
        table(), torch.tensor([1, 0]), torch.tensor([3, 4]), topk=2, num_steps=2, pool_len=POOL_LEN
    )
    assert out[0, :5].tolist() == [100, 101, 102, 103, 104]
    assert out[1, :5].tolist() == [100, 101, 102, 105, 106]
    assert out[2, :6].tolist() == [0, 1, 2, 3, 4, 5]
    assert out[3, :6].tolist() == [0, 1, 2, 3, 6, 7]


def test_accepted_slots_are_packed(ops: ModuleType) -> None:
    out = torch.full((4,), -7)
    ops.fill_accept_out_cache_loc_cpu(torch.tensor([[0, 2, -1], [3, -1, -1]]), torch.arange(10, 16), out)
    assert out.tolist() == [10, 12, 13, -7]


def test_bonus_token_is_the_last_accepted_one(ops: ModuleType) -> None:
    out = torch.zeros(2, dtype=torch.long)
    tokens = torch.tensor([[7, 8, 9], [4, 5, 6]])
    ops.fill_bonus_tokens_cpu(tokens, torch.tensor([2, 1]), out, accept_stride=3)
    assert out.tolist() == [8, 4]


def test_rotation_drops_the_first_token_and_appends_the_new_one(ops: ModuleType) -> None:
    ids = torch.tensor([1, 2, 3, 4, 5])
    ops.rotate_input_ids_cpu(ids, torch.tensor([0, 3]), torch.tensor([3, 2]), torch.tensor([30, 50]))
    assert ids.tolist() == [2, 3, 30, 5, 50]


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_moving_cache_rows_equals_indexing(ops: ModuleType, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 6))
    target = torch.tensor(data.draw(st.permutations(range(12)))[:count], dtype=torch.long)
    source = torch.tensor(data.draw(st.permutations(range(12)))[:count], dtype=torch.long)
    buffers = [torch.randn(12, 2, 4), torch.randn(12, 3, 5)]
    expected = [buffer.clone() for buffer in buffers]
    for buffer in expected:
        buffer[target] = buffer[source]  # reads everything before it writes
    pointers = torch.tensor([buffer.data_ptr() for buffer in buffers])
    strides = torch.tensor([buffer[0].nbytes for buffer in buffers])
    ops.copy_all_layer_kv_cache_cpu(pointers, strides, target, source)
    assert all(torch.equal(a, b) for a, b in zip(buffers, expected, strict=True))
