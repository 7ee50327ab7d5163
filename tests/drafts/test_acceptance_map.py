"""The map: accept lengths by walking, not by averaging; its file; what it does not cover."""

from pathlib import Path

import numpy as np
import pytest

from sweeper.drafts.acceptance_map import AcceptanceMap, MapError, MapFacts, walked_rounds
from sweeper.speculation import SpeculationConfig

FACTS = MapFacts(
    "target", "t0", {"a": "d0"}, "prompts.jsonl", "w0", 2, 9, 8, {1: 2, 2: 2}, 1.0, {"torch": "2"}
)


def chain(matches: list[int], steps: int = 2) -> np.ndarray:
    """Ranks of a chain that guesses ``matches[p]`` tokens from position p on."""
    ranks = np.zeros((len(matches), steps, steps), np.int16)
    for p, match in enumerate(matches):
        for s in range(steps):
            ranks[p, s, : min(match, s + 1)] = range(1, min(match, s + 1) + 1)
    return ranks


# Two prompts, of 4 and 3 positions. From position 0 one draft is right, from 1 two are, ...
MATCHES = [1, 2, 0, 0, 2, 0, 1]
TREE = chain(MATCHES)
TREE[0, 1] = [3, 5]  # a tree of topk 2 and 2 steps holds both tokens, as its third and fifth best node
TREE[0, 0] = [2, 0]
MAP = AcceptanceMap(FACTS, np.array([4, 3]), {("a", 1): chain(MATCHES), ("a", 2): TREE})


def test_the_accept_length_is_that_of_the_rounds_a_server_would_make() -> None:
    # prompt 1: 0 (+2) 2 (+1) 3 (+1); prompt 2: 0 (+3): 7 tokens in 4 rounds, while the mean over positions is 13/7
    assert MAP.accept_length("a", 2, 1, 3)[0] == pytest.approx(7 / 4)
    assert MAP.histogram("a", 2, 1, 3) == (2, 1, 1)
    # one step: 0 (+2) 2 3; 0 (+2) 2 (+1, cut)
    assert MAP.accept_length("a", 1, 1, 2)[0] == pytest.approx(7 / 5)


def test_a_tree_accepts_only_what_its_tokens_hold() -> None:
    assert [MAP.advances("a", 2, 2, n)[0] for n in (2, 3, 4, 5, 6)] == [1, 1, 2, 2, 3]


def test_the_standard_error_comes_from_the_scatter_between_prompts() -> None:
    even = AcceptanceMap(FACTS, np.array([2, 2]), {("a", 1): chain([1, 0, 1, 0])})
    assert even.accept_length("a", 2, 1, 3) == (2.0, 0.0)
    assert MAP.accept_length("a", 2, 1, 3)[1] > 0.1


def test_a_walk_ends_with_the_output() -> None:
    rounds = walked_rounds(np.array([5, 5, 1]), np.array([2, 1, 0]))
    assert rounds.sum() == 2
    assert rounds[2].sum() == 0


def test_the_file_gives_the_map_back(tmp_path: Path) -> None:
    MAP.save(tmp_path / "map.parquet")
    again = AcceptanceMap.load(tmp_path / "map.parquet")
    assert again.facts == FACTS
    assert again.ranks.keys() == MAP.ranks.keys()
    for key, ranks in MAP.ranks.items():
        assert np.array_equal(again.ranks[key], ranks)
    assert again.accept_length("a", 2, 2, 6) == MAP.accept_length("a", 2, 2, 6)


def test_what_it_does_not_cover_is_an_error_that_says_what_it_has() -> None:
    for draft, steps, topk in (("b", 1, 1), ("a", 3, 1), ("a", 1, 4)):
        with pytest.raises(MapError, match="a topk 1 up to 2 steps"):
            MAP.accept_length(draft, steps, topk, 2)
        assert not MAP.covers(SpeculationConfig("EAGLE3", draft, steps, topk, steps + 1))
    assert MAP.covers(SpeculationConfig("EAGLE3", "a", 2, 1, 3))
    assert not MAP.covers(SpeculationConfig("NGRAM", "a", 1, 1, 2))


@pytest.mark.parametrize("content", [b"", b"no parquet", None])
def test_a_file_that_is_no_map_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "map.parquet"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(MapError, match="map"):
        AcceptanceMap.load(path)
