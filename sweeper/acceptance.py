"""Accept lengths, histograms and acceptance by position. Pure functions.

Definitions (N output tokens, V verify rounds, D accepted drafts of a request; the first token comes from
prefill and needs no verify round):

* accept length A = (N-1)/V, over many requests Σ(N-1)/ΣV; the bonus token is included; 1 without speculation
* histogram h[i] = verify rounds in which i drafts were accepted
* marginal acceptance at position i = Σ_{j≥i} h[j] / Σh; conditional = marginal_i / marginal_{i-1}
* accept rate = accepted drafts / proposed drafts = (A-1)/(n-1)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, zip_longest


def accept_length(output_tokens: int, verify_rounds: int) -> float:
    """Output tokens per verify round, without the first token, which prefill produced.

    SGLang's own ``spec_accept_length`` is N/V and so high by 1/V.

    >>> round(accept_length(64, 17), 4)
    3.7059
    """
    if verify_rounds < 1:
        raise ValueError(f"an accept length needs at least one verify round, not {verify_rounds}")
    return (output_tokens - 1) / verify_rounds


def accept_rate(accept_length: float, num_draft_tokens: int) -> float:
    """Accepted over proposed drafts, (A-1)/(n-1), in [0, 1] for chains.

    >>> accept_rate(2.5, 4)
    0.5
    """
    return (accept_length - 1) / (num_draft_tokens - 1)


def add_histograms(histograms: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """Sum of histograms of any lengths, as long as the longest.

    >>> add_histograms([(1, 2), (3, 0, 5)])
    (4, 2, 5)
    """
    total: tuple[int, ...] = ()
    for histogram in histograms:
        total = tuple(a + b for a, b in zip_longest(total, histogram, fillvalue=0))
    return total


def marginal_acceptance(histogram: Sequence[int]) -> list[float]:
    """Share of verify rounds that accept at least i drafts, for i = 1, 2, ... (length of histogram - 1).

    >>> marginal_acceptance([1, 1, 2])
    [0.75, 0.5]
    """
    rounds = sum(histogram)
    if rounds == 0:
        return []
    at_least = list(accumulate(reversed(histogram)))[::-1]
    return [count / rounds for count in at_least[1:]]


def conditional_acceptance(histogram: Sequence[int]) -> list[float]:
    """Acceptance at position i among the rounds that accepted position i-1; ends where none did.

    >>> conditional_acceptance([1, 1, 2])
    [0.75, 0.6666666666666666]
    """
    rates, before = [], 1.0
    for marginal in marginal_acceptance(histogram):
        if before == 0:
            break
        rates.append(marginal / before)
        before = marginal
    return rates


def expected_accept_length(conditional_accuracies: Sequence[float]) -> float:
    """Accept length that per-position conditional accuracies promise: 1 + Σ_i Π_{j≤i} a_j.

    >>> expected_accept_length([0.747, 0.67])
    2.24749
    """
    return 1 + sum(accumulate(conditional_accuracies, lambda a, b: a * b))
