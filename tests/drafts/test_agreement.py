"""Counting what a draft gets right: conditional, marginal, on true text, and walked."""

import numpy as np
import pytest
import torch

from sweeper.drafts.agreement import Counted, Text, _count, total


def text(choices_are_text: bool = True) -> Text:
    """Ids 0..7; the answer begins with id 3."""
    ids = torch.arange(8)
    choices = torch.cat((ids[1:], torch.tensor([99])))
    if not choices_are_text:
        choices[4] = 50  # the target would not have written id 5 there
    return Text(ids, {}, choices, torch.arange(8) >= 3)


def counted(wrong: list[tuple[int, int]], of: Text) -> Counted:
    """A draft of depth 2 that is right everywhere but at the (pair, step) pairs of ``wrong``."""
    pairs = len(of.ids) - 2
    after = np.minimum(np.arange(pairs)[:, None] + 1 + np.arange(2), len(of.ids) - 1)
    guesses = of.choices.numpy()[after]
    for pair, step in wrong:
        guesses[pair, step] = 77
    return _count(guesses, of)


def test_a_perfect_draft_advances_by_its_depth_and_the_bonus() -> None:
    found = counted([], text())
    # Last known tokens 3, 4, 5, 6 (pairs 2..5); the second step of pair 5 would predict behind the end.
    assert found.reached.tolist() == found.accepted.tolist() == [4, 3]
    assert (found.tokens, found.rounds) == (4, 2)  # 3 -> 6 -> 7
    assert found.expected_accept_length == 3


def test_a_later_step_counts_as_conditional_only_where_the_chain_was_right_so_far() -> None:
    found = counted([(2, 0), (3, 1)], text())
    assert found.conditional == [3 / 4, 1 / 2]  # chains of pairs 3 and 4 reach step 2, one of them is right
    assert found.marginal == [3 / 4, 3 / 8]
    assert found.on_true_text == [3 / 4, 2 / 3]  # pair 2's second step is right on the true text
    assert (found.tokens, found.rounds) == (4, 3)  # 3 -> 4 -> 6 -> 7


def test_where_the_text_is_not_the_targets_choice_a_right_proposal_ends_the_chain() -> None:
    found = counted([], text(choices_are_text=False))
    assert found.accepted[0] == 4
    assert found.reached[1] == 2  # pair 3 proposed what the target chooses, but the text goes on otherwise


def test_texts_add_up() -> None:
    both = total([counted([], text()), counted([(2, 0)], text())])
    assert both.reached.tolist() == [8, 5]
    assert both.tokens == 8


def test_answers_in_several_turns_are_walked_one_by_one() -> None:
    several = Text(
        torch.arange(12), {}, torch.arange(1, 13), torch.tensor([0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1]) > 0
    )
    found = counted([], several)
    assert found.tokens == 2 + 4
    assert found.rounds == 1 + 2


@pytest.mark.parametrize("depth", [1, 3])
def test_counts_of_a_text_without_an_answer_are_empty(depth: int) -> None:
    silent = Text(torch.arange(8), {}, torch.arange(1, 9), torch.zeros(8, dtype=torch.bool))
    assert _count(np.zeros((6, depth), np.int64), silent).rounds == 0
