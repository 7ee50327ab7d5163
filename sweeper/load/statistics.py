"""From raw requests to a load point. Intervals are 95 % bootstrap intervals over requests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sweeper.acceptance import add_histograms
from sweeper.intervals import ratio_interval
from sweeper.load.closed_loop import LoadRun
from sweeper.records import Interval, LoadPoint, Quantiles, RequestRecord


class FailedLoadError(Exception):
    """Requests failed or counters are missing: the load point has no value."""


def quantiles(values: Sequence[float]) -> Quantiles:
    p50, p90, p99 = np.quantile(values, (0.5, 0.9, 0.99))
    return Quantiles(float(np.mean(values)), float(p50), float(p90), float(p99))


def load_point(run: LoadRun, speculates: bool) -> LoadPoint:
    """The statistics of one load.

    The rate is what arrived in the window. Its relative uncertainty is that of ΣN/Σe2e over the requests,
    which in a closed loop is the rate per slot (Little's law).

    Raises:
        FailedLoadError: the server stalled, or any request failed, was cached, or came without the counters that a
            speculating server owes.
    """
    if run.stalled_s is not None:
        raise FailedLoadError(f"no token from any request for {run.stalled_s:.0f} s")
    requests = run.requests
    _require_clean(requests, speculates)
    tokens = np.array([r.completion_tokens for r in requests])
    e2e = np.array([r.e2e_s for r in requests])
    ttft = np.array([(r.first_token_s or r.done_s) - r.sent_s for r in requests])
    rounds = np.array([(r.verify_rounds or 0) if speculates else r.completion_tokens - 1 for r in requests])
    if not rounds.sum():
        raise FailedLoadError("no request went beyond its first token: nothing to measure a step by")
    start, end = run.window
    arrived = sum(count for at, count in run.arrivals if start < at <= end)
    per_slot = ratio_interval(tokens, e2e)
    rate = arrived / (end - start)
    scale = rate / per_slot.value
    return LoadPoint(
        concurrency=run.concurrency,
        requests=len(requests),
        failed=0,
        output_tok_s=Interval(rate, per_slot.low * scale, per_slot.high * scale),
        plain_tok_s=float(tokens.sum() / max(r.done_s for r in requests)),
        window_s=end - start,
        accept_length=ratio_interval(tokens - 1, rounds),
        histogram=add_histograms(r.histogram for r in requests if r.histogram),
        step_time_s=float((e2e - ttft).sum() / rounds.sum()),
        ttft_s=quantiles(ttft.tolist()),
        tpot_s=quantiles(((e2e - ttft) / np.maximum(tokens - 1, 1)).tolist()),
        e2e_s=quantiles(e2e.tolist()),
        sources=run.sources,
    )


def _require_clean(requests: Sequence[RequestRecord], speculates: bool) -> None:
    failed = [r for r in requests if r.error]
    if failed:
        raise FailedLoadError(
            f"{len(failed)} of {len(requests)} requests failed at concurrency {failed[0].concurrency}; "
            f"the first: {failed[0].error}"
        )
    cached = [r for r in requests if r.cached_tokens]
    if cached:
        raise FailedLoadError(f"{len(cached)} requests were served from the prefix cache, which must be off")
    mute = [r for r in requests if speculates and r.verify_rounds is None and r.completion_tokens > 1]
    if mute:
        raise FailedLoadError(f"{len(mute)} requests came without speculation counters: no accept length")
