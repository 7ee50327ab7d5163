"""How likely a candidate runs at all."""

import pytest

from sweeper.records import FailureClass
from sweeper.search.avoidance import Fault, chance_to_run
from sweeper.speculation import SpeculationConfig


def tree(steps: int, topk: int, tokens: int, draft: str = "a") -> SpeculationConfig:
    return SpeculationConfig("EAGLE3", draft, steps, topk, tokens)


NGRAM = SpeculationConfig("NGRAM", "none", 0, 1, 8)


def test_where_nothing_failed_everything_runs() -> None:
    assert list(chance_to_run([tree(3, 1, 4), NGRAM], [tree(3, 1, 4)], [])) == [1.0, 1.0]


def test_what_is_larger_than_one_that_ran_out_of_memory_will_do_so_too() -> None:
    """10 · 0.3 speak against what is nowhere smaller, nothing for it but 0.3: 0.3/3.3."""
    failed = [Fault(tree(4, 4, 16), FailureClass.OOM_RUNTIME)]
    same, larger, other_algorithm = chance_to_run([tree(4, 4, 16), tree(8, 4, 32), NGRAM], [], failed)
    assert same == larger == pytest.approx(0.3 / 3.3)
    assert other_algorithm == 1


def test_neighbours_count_for_and_against_by_their_distance() -> None:
    """A crash counts 1 against its config and 0.5 against another draft's; a launch that ran counts likewise."""
    failed = [Fault(tree(4, 4, 16), FailureClass.CRASH)]
    near, sibling, far = chance_to_run([tree(4, 4, 16), tree(4, 4, 16, "b"), tree(1, 1, 2)], [], failed)
    assert near == pytest.approx(0.3 / 1.3)
    assert sibling == pytest.approx(0.3 / 0.8)
    assert far > 0.99
    [both] = chance_to_run([tree(4, 4, 16)], [tree(4, 4, 16)], failed)
    assert both == pytest.approx(1.3 / 2.3)
