"""The attention operators against one request, one head, one query at a time."""

from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

HEAD_DIM, POOL, TABLE_WIDTH = 8, 64, 24
SCALE = 0.3


def reference(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """One query [D] against all visible keys [m, D]."""
    weights = torch.tensor([float(query.double() @ key.double()) * SCALE for key in keys]).softmax(0)
    return sum((w * v for w, v in zip(weights, values, strict=True)), torch.zeros(HEAD_DIM))


class Case:
    """Requests with random caches: ``prefixes`` committed tokens each, then ``extends`` new ones."""

    def __init__(self, prefixes: list[int], extends: list[int], groups: int, seed: int) -> None:
        g = torch.Generator().manual_seed(seed)
        kv_heads = 2
        self.prefixes, self.extends, self.groups = prefixes, extends, groups
        self.k = torch.randn(POOL, kv_heads, HEAD_DIM, generator=g)
        self.v = torch.randn(POOL, kv_heads, HEAD_DIM, generator=g)
        self.lengths = torch.tensor([p + e for p, e in zip(prefixes, extends, strict=True)])
        self.table = torch.zeros(len(prefixes) + 2, TABLE_WIDTH, dtype=torch.int32)
        self.rows = torch.randperm(len(prefixes) + 2, generator=g)[: len(prefixes)]
        free = torch.randperm(POOL, generator=g)
        for row, length in zip(self.rows, self.lengths.tolist(), strict=True):
            self.table[row, :length], free = free[:length].to(torch.int32), free[length:]
        total = sum(extends)
        self.query = torch.randn(total, kv_heads * groups, HEAD_DIM, generator=g)
        self.new_k = torch.randn(total, kv_heads, HEAD_DIM, generator=g)
        self.new_v = torch.randn(total, kv_heads, HEAD_DIM, generator=g)

    def new_slots(self) -> Tensor:
        spans = zip(self.rows, self.prefixes, self.lengths.tolist(), strict=True)
        return torch.cat([self.table[row, start:end] for row, start, end in spans]).long()

    def expected(self, visible: list[Tensor]) -> Tensor:
        """``visible[request]`` bool [new, length]."""
        k, v = self.k.clone(), self.v.clone()
        k[self.new_slots()], v[self.new_slots()] = self.new_k, self.new_v
        out, token = torch.zeros_like(self.query), 0
        for request, row in enumerate(self.rows):
            slots = self.table[row, : self.lengths[request]].long()
            for i in range(self.extends[request]):
                seen = slots[visible[request][i]]
                for head in range(out.shape[1]):
                    kv = head // self.groups
                    out[token, head] = reference(self.query[token, head], k[seen, kv], v[seen, kv])
                token += 1
        return out

    def extend(self, tree: Tensor | None, causal: bool = True, given: bool = True) -> Tensor:
        out = torch.empty_like(self.query)
        starts = torch.tensor(self.extends).cumsum(0) - torch.tensor(self.extends)
        torch.ops.sgl_kernel.extend_attention_cpu(
            self.query, self.new_k if given else None, self.new_v if given else None, out, self.k, self.v, 1.0, 1.0,
            self.table, self.rows, self.lengths, torch.tensor(self.extends), starts, max(self.extends),
            SCALE, 0.0, False, 0, None, None, tree, causal,
        )  # fmt: skip
        return out

    def causal(self) -> list[Tensor]:
        sizes = zip(self.extends, self.lengths.tolist(), strict=True)
        return [torch.ones(new, length, dtype=torch.bool).tril(length - new) for new, length in sizes]


requests = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=4)
seeds, group_sizes = st.integers(0, 1000), st.sampled_from([1, 3])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), group_sizes, seeds)
def test_decode_stores_the_new_token_and_attends_to_everything(
    ops: ModuleType, prefixes: list[int], groups: int, seed: int
) -> None:
    case = Case(prefixes, [1] * len(prefixes), groups, seed)
    expected = case.expected(case.causal())
    out = torch.empty_like(case.query)
    torch.ops.sgl_kernel.decode_attention_cpu(
        case.query, case.k, case.v, 1.0, 1.0, out, case.new_k, case.new_v, case.new_slots(), torch.empty(0),
        case.table, case.rows, case.lengths, SCALE, 0.0, False, 0, None, None,
    )  # fmt: skip
    torch.testing.assert_close(out, expected)
    assert torch.equal(case.k[case.new_slots()], case.new_k)
    assert torch.equal(case.v[case.new_slots()], case.new_v)


@settings(max_examples=25, deadline=None)
@given(requests, group_sizes, seeds)
def test_extend_is_causal_and_leaves_the_cache_alone(
    ops: ModuleType, shape: list[tuple[int, int]], groups: int, seed: int
) -> None:
    case = Case([p for p, _ in shape], [e for _, e in shape], groups, seed)
    before = case.k.clone()
    torch.testing.assert_close(case.extend(tree=None), case.expected(case.causal()))
    assert torch.equal(case.k, before)


@settings(max_examples=25, deadline=None)
@given(requests, seeds, st.booleans())
def test_extend_follows_a_tree_mask(
    ops: ModuleType, shape: list[tuple[int, int]], seed: int, even: bool
) -> None:
    extends = [shape[0][1] if even else e for _, e in shape]
    case = Case([p for p, _ in shape], extends, 1, seed)
    g = torch.Generator().manual_seed(seed)
    trees = [torch.eye(n, dtype=torch.bool) | (torch.rand(n, n, generator=g) < 0.5).tril() for n in extends]
    visible = [
        torch.cat([torch.ones(len(tree), prefix, dtype=torch.bool), tree], 1)
        for prefix, tree in zip(case.prefixes, trees, strict=True)
    ]
    actual = case.extend(torch.cat([tree.flatten() for tree in trees]))
    torch.testing.assert_close(actual, case.expected(visible))


def test_extend_without_causality_sees_later_tokens(ops: ModuleType) -> None:
    case = Case([3, 1], [2, 4], 1, seed=0)
    visible = [torch.ones_like(seen) for seen in case.causal()]
    torch.testing.assert_close(case.extend(tree=None, causal=False), case.expected(visible))


def test_extend_reads_new_tokens_from_the_cache_when_they_are_not_given(ops: ModuleType) -> None:
    case = Case([3, 1], [2, 2], 1, seed=0)
    expected = case.expected(case.causal())
    case.k[case.new_slots()], case.v[case.new_slots()] = case.new_k, case.new_v
    torch.testing.assert_close(case.extend(tree=None, given=False), expected)


@pytest.mark.parametrize("wrong", [{"logit_cap": 30.0}, {"sliding_window": 5}, {"is_cross_attn": True}])
def test_features_that_are_missing_are_refused(ops: ModuleType, wrong: dict[str, Any]) -> None:
    case = Case([2], [1], 1, seed=0)
    arguments: dict[str, Any] = {
        "query": case.query, "k_buffer": case.k, "v_buffer": case.v, "k_scale": 1.0, "v_scale": 1.0,
        "output": torch.empty_like(case.query), "key": None, "value": None, "loc": case.new_slots(),
        "attn_logits": torch.empty(0), "req_to_token": case.table, "req_pool_indices": case.rows,
        "seq_lens": case.lengths, "scale": SCALE, "logit_cap": 0.0, "is_cross_attn": False,
        "sliding_window": 0, "encoder_lens": None, "sinks": None,
    }  # fmt: skip
    with pytest.raises(NotImplementedError, match="not supported"):
        torch.ops.sgl_kernel.decode_attention_cpu(**(arguments | wrong))
