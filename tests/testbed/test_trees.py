"""The tree operators on a tree worked out by hand, and against SGLang's own kernels."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest
import torch

from sweeper.testbed.environment import STANDIN, server_environment

# Two steps of topk 2, five nodes.  Candidates 0 and 1 hang on the root; 2 and 3 on candidate 0; 4 and 5 on
# candidate 1.  Chosen: 0, 1, 3, 4, so that the tree is
#   node 0 -> node 1 (candidate 0) -> node 3 (candidate 3)
#          -> node 2 (candidate 1) -> node 4 (candidate 4)
PARENTS = torch.tensor([[-1, 0, 1]])
SELECTED = torch.tensor([[0, 1, 3, 4]])
FIRST_CHILD = [1, 3, 4, -1, -1]
SIBLING = [-1, 2, -1, -1, -1]
MASK = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]]
POSITIONS = [10, 11, 11, 12, 12]  # behind 10 committed tokens
NODES = 5


def test_a_tree_is_built_from_the_selected_candidates(ops: ModuleType) -> None:
    mask, positions = torch.ones(NODES * NODES, dtype=torch.bool), torch.zeros(NODES, dtype=torch.long)
    flat, first, sibling = torch.full((3, 1, NODES), -1, dtype=torch.long)
    ops.build_tree_kernel_efficient_cpu(
        PARENTS, SELECTED, torch.tensor([10]), mask, positions, flat, first, sibling, 2, 2, NODES, 1
    )
    assert mask.view(NODES, NODES).int().tolist() == MASK
    assert positions.tolist() == POSITIONS
    assert (flat.tolist(), first.tolist(), sibling.tolist()) == ([[0, 1, 2, 3, 4]], [FIRST_CHILD], [SIBLING])


def test_a_tree_is_recovered_from_its_mask(ops: ModuleType) -> None:
    positions = torch.zeros(NODES, dtype=torch.long)
    flat, first, sibling = torch.full((3, 1, NODES), -1, dtype=torch.long)
    mask = torch.tensor(MASK).bool().flatten()
    ops.reconstruct_indices_from_tree_mask(
        mask, torch.tensor([10]), positions, flat, first, sibling, 1, NODES
    )
    assert positions.tolist() == POSITIONS
    assert (first.tolist(), sibling.tolist()) == ([FIRST_CHILD], [SIBLING])


@pytest.mark.parametrize(
    ("target", "accepted"),
    [
        ([99, 0, 0, 0, 0], [0, -1, -1]),  # no child has the target's token
        ([52, 0, 99, 0, 0], [0, 2, -1]),  # the second child has it, nothing below
        ([51, 53, 0, 7, 0], [0, 1, 3]),  # the whole left branch
        ([52, 53, 54, 0, 7], [0, 2, 4]),  # the whole right branch
    ],
)
def test_verification_walks_down_while_a_child_agrees(
    ops: ModuleType, target: list[int], accepted: list[int]
) -> None:
    predicts, number = torch.zeros(NODES, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    index = torch.full((1, 3), -1, dtype=torch.int32)
    ops.verify_tree_greedy_cpu(
        predicts, index, number, torch.tensor([[50, 51, 52, 53, 54]]), torch.arange(NODES)[None],
        torch.tensor([FIRST_CHILD]), torch.tensor([SIBLING]), torch.tensor([target]),
    )  # fmt: skip
    path = [node for node in accepted if node >= 0]
    assert index[0].tolist() == accepted
    assert int(number) == len(path) - 1
    assert predicts[path].tolist() == [target[node] for node in path]


@pytest.mark.skipif(
    find_spec("triton") is None or find_spec("sglang") is None,
    reason="needs the real triton, which is not part of the test bed, and sglang",
)
def test_random_trees_equal_those_of_sglangs_triton_kernels() -> None:
    environment = {**os.environ, **server_environment(), "TRITON_INTERPRET": "1"}
    # The stand-ins last: the real triton has to win over the one beside the operators.
    environment["PYTHONPATH"] = os.pathsep.join([*filter(None, sys.path), str(STANDIN)])
    script = Path(__file__).with_name("compare_trees.py")
    run = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "30"
