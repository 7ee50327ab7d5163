"""The per-request counters in SGLang's ``meta_info``, under the names of every release since 0.5.2.

N output tokens come from V verify rounds with D accepted drafts: N = 1 + V + D, since prefill produces the first token
and every round adds one of its own. The last round may accept more than the output has room for (the second engine,
0.5.11 and later, counts those drafts all the same), so N may fall short of the sum by that round's drafts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")
"""Names by age, newest first."""

ACCEPT_LENGTH = "(completion_tokens - 1) / spec_verify_ct"
"""SGLang's own spec_accept_length divides completion_tokens and is high by 1/V; 0.5.2 has none."""


class MissingCountersError(ValueError):
    """A server that speculates reported no counters: the load point fails, it does not count as zero."""


@dataclass(frozen=True)
class SpeculationCounters:
    """V verify rounds, D accepted drafts and the histogram h of one request; Σh = V, Σ i·h[i] = D.

    D and h are None for releases that do not report them (0.5.2 and .4; the histogram came with 0.5.9).
    ``sources`` tells what each number was read from.
    """

    verify_rounds: int
    accepted_drafts: int | None
    histogram: tuple[int, ...] | None
    sources: Mapping[str, str] = field(default_factory=dict)


def speculation_counters(meta_info: Mapping[str, Any]) -> SpeculationCounters | None:
    """The counters of a finished request; None where it needed no verify round or the server has none.

    SGLang leaves the keys out when a request ends with its first token, which prefill produces.

    Raises:
        MissingCountersError: the counters contradict each other or the token count.
    """
    rounds = meta_info.get("spec_verify_ct")
    if not rounds:
        return None
    accepted_key = next((key for key in ACCEPTED if meta_info.get(key) is not None), None)
    histogram_key = next((key for key in HISTOGRAM if meta_info.get(key)), None)
    sources = {"accept_length": ACCEPT_LENGTH}
    if accepted_key:
        sources["accepted_drafts"] = accepted_key
    if histogram_key:
        sources["histogram"] = histogram_key
    counters = SpeculationCounters(
        int(rounds),
        int(meta_info[accepted_key]) if accepted_key else None,
        tuple(meta_info[histogram_key]) if histogram_key else None,
        sources,
    )
    _check(counters, int(meta_info["completion_tokens"]), int(meta_info.get("num_retractions") or 0))
    return counters


def _check(counters: SpeculationCounters, completion_tokens: int, retractions: int) -> None:
    """Every retraction ends in another prefill, which adds a token of its own."""
    v, d, h = counters.verify_rounds, counters.accepted_drafts, counters.histogram
    if h is not None and sum(h) != v:
        raise MissingCountersError(f"histogram {list(h)} sums to {sum(h)}, but there were {v} verify rounds")
    if h is not None:
        total = sum(i * count for i, count in enumerate(h))
        if d is not None and total != d:
            raise MissingCountersError(f"histogram {list(h)} does not add up to {d} accepted drafts")
        d = total
    if completion_tokens < 1 + v:
        raise MissingCountersError(
            f"{completion_tokens} tokens are too few for {v} verify rounds: each adds one at least"
        )
    if d is None:
        return
    cut_off = max((i for i, count in enumerate(h or ()) if count), default=d)
    if not -1 - retractions <= 1 + v + d - completion_tokens <= cut_off + 1:
        raise MissingCountersError(
            f"{completion_tokens} tokens do not come from {v} verify rounds with {d} accepted drafts"
        )
