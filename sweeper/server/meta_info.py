"""The per-request counters in SGLang's ``meta_info``, under the names of every release since 0.5.2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

ACCEPTED = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
HISTOGRAM = ("spec_correct_drafts_histogram", "spec_accept_histogram")


class MissingCountersError(ValueError):
    """A server that speculates reported no counters: the load point fails, it does not count as zero."""


@dataclass(frozen=True)
class SpeculationCounters:
    """V verify rounds, D accepted drafts and the histogram h of one request; Σh = V, Σ i·h[i] = D."""

    verify_rounds: int
    accepted_drafts: int | None
    histogram: tuple[int, ...] | None


def speculation_counters(meta_info: Mapping[str, Any]) -> SpeculationCounters | None:
    """The counters of a finished request; None where it needed no verify round or the server has none.

    SGLang leaves the keys out when a request ends with its first token, which prefill produces.

    Raises:
        MissingCountersError: the counters contradict each other or the token count.
    """
    rounds = meta_info.get("spec_verify_ct")
    if not rounds:
        return None
    accepted = next((meta_info[key] for key in ACCEPTED if key in meta_info), None)
    histogram = next((tuple(meta_info[key]) for key in HISTOGRAM if meta_info.get(key)), None)
    counters = SpeculationCounters(int(rounds), accepted, histogram)
    _check(counters, int(meta_info["completion_tokens"]))
    return counters


def _check(counters: SpeculationCounters, completion_tokens: int) -> None:
    v, d, h = counters.verify_rounds, counters.accepted_drafts, counters.histogram
    if h is not None and sum(h) != v:
        raise MissingCountersError(f"histogram {list(h)} sums to {sum(h)}, but there were {v} verify rounds")
    if h is not None and d is not None and sum(i * count for i, count in enumerate(h)) != d:
        raise MissingCountersError(f"histogram {list(h)} does not add up to {d} accepted drafts")
    if d is not None and completion_tokens > 1 + v + d + 1:
        raise MissingCountersError(
            f"{completion_tokens} tokens cannot come from {v} rounds with {d} accepted drafts"
        )
