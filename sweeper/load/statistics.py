"""From raw requests to a load point: everything here can be computed again from the stored requests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from sweeper.acceptance import add_histograms
from sweeper.analysis.intervals import (
    SAME,
    UNKNOWN_ERROR,
    Array,
    LogEstimate,
    joined,
    product,
    quotient,
    rate,
    ratio,
)
from sweeper.load.window import Stretch, steady_window, step_progress, steps, stretches, within
from sweeper.records import (
    UNKNOWN_REPEATABILITY,
    EndedBy,
    Interval,
    Load,
    LoadPoint,
    Quantiles,
    Repeatability,
    RequestRecord,
    Warmup,
)
from sweeper.speculation import SpeculationConfig

MOST_MERGED = 0.01
"""Share of chunks with more tokens than a step can give, above which the stream merges chunks."""


LEAST_ROUNDS = 3
"""Durations of a request that a window must hold before the width of its interval is believed."""


class FailedLoadError(Exception):
    """Requests failed or counters are missing: the load point has no value."""


@dataclass(frozen=True)
class Expectation:
    """What a load's numbers are judged by.

    ``most_per_step`` is the most tokens that one step can give: 1, or num_draft_tokens.
    """

    speculates: bool
    most_per_step: int = 1
    prefix_cache: bool = False
    drift_tolerance: float = 0.1
    repeats: Repeatability = UNKNOWN_REPEATABILITY

    @classmethod
    def of(
        cls, config: SpeculationConfig, prefix_cache: bool, drift_tolerance: float, repeats: Repeatability
    ) -> Expectation:
        """Of a server that runs ``config``."""
        return cls(config.speculates, max(1, config.num_draft_tokens), prefix_cache, drift_tolerance, repeats)

    def off(self, load: Load) -> LogEstimate:
        """The factor by which a measurement at a load may be off without showing it."""
        return LogEstimate(1.0, *self.repeats.at(load))


@dataclass(frozen=True)
class LoadData:
    """What was measured at one load: the requests of all visits to it, and what the client knows besides."""

    load: Load
    requests: Sequence[RequestRecord]
    ended_by: EndedBy = EndedBy.REQUESTS
    warmup: Warmup | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def load_point(data: LoadData, expected: Expectation) -> LoadPoint:
    """The statistics of one load.

    The rate is what arrived in the steady windows, over their length; how sure it is: ``sweeper.analysis.intervals``.

    Raises:
        FailedLoadError: any request failed, was cached where the cache must be off, or came without the counters that
            a speculating server owes.
    """
    requests = data.requests
    require_clean(requests, expected)
    tokens = np.array([r.completion_tokens for r in requests], float)
    e2e = np.array([r.e2e_s for r in requests])
    ttft = np.array([(r.first_token_s or r.done_s) - r.sent_s for r in requests])
    rounds = np.array([_steps(r, expected.speculates) for r in requests], float)
    if not rounds.sum():
        raise FailedLoadError("no request went beyond its first token: nothing to measure a step by")
    stepped = rounds > 0
    streamed = stepped & ~np.array([_in_one_piece(r) for r in requests])
    timed, decoding = (streamed, e2e - ttft) if streamed.any() else (stepped, e2e)
    steady = stretches(requests, data.load)
    drift, unstable = _drift(steady, expected.drift_tolerance)
    prompt_tokens = sum(r.prompt_tokens for r in requests)
    return LoadPoint(
        load=data.load,
        requests=len(requests),
        output_tok_s=rate_estimate(steady, expected.off(data.load)).interval,
        plain_tok_s=float(tokens.sum() / sum(_wall_s(visit.requests) for visit in steady)),
        window_s=sum(visit.seconds for visit in steady),
        accept_length=ratio((tokens - 1)[stepped], rounds[stepped]).interval,
        histogram=add_histograms(r.histogram for r in requests if r.histogram),
        step_time_s=float(decoding[timed].sum() / rounds[timed].sum()),
        ttft_s=quantiles(ttft),
        tpot_s=quantiles(decoding[timed] / (tokens - 1)[timed]),
        e2e_s=quantiles(e2e),
        ended_by=data.ended_by,
        drift=drift,
        unstable=unstable,
        warmup=data.warmup,
        cached_share=sum(r.cached_tokens for r in requests) / prompt_tokens if prompt_tokens else 0.0,
        sources=data.sources,
        notes=(*data.notes, *_stream_notes(requests, expected)),
    )


def quantiles(values: Array) -> Quantiles:
    p50, p90, p99 = np.quantile(values, (0.5, 0.9, 0.99))
    return Quantiles(float(np.mean(values)), float(p50), float(p90), float(p99))


def _steps(request: RequestRecord, speculates: bool) -> int:
    """V, or the tokens after the first where there is no speculation."""
    return (request.verify_rounds or 0) if speculates else max(0, request.completion_tokens - 1)


def _wall_s(requests: Sequence[RequestRecord]) -> float:
    return max(r.done_s for r in requests) - min(r.sent_s for r in requests)


def rate_estimate(steady: Sequence[Stretch], off: LogEstimate = SAME) -> LogEstimate:
    """Output tokens per second: steps per second, which the machine scatters, times tokens per step.

    ``off``: the factor by which any one stretch may be off without showing it.
    """
    inside = [r for visit in steady for r in visit.requests if within(r, visit.window)[1] > 0]
    tokens = sum(within(r, visit.window)[0] for visit in steady for r in visit.requests)
    parts = product(step_rate(steady, off), tokens_per_step(inside))
    return replace(parts, value=tokens / sum(visit.seconds for visit in steady))


def step_rate(steady: Sequence[Stretch], off: LogEstimate = SAME) -> LogEstimate:
    """Steps per second over all requests, from slices of time."""
    rates = [rate(step_progress(visit.requests, visit.window), visit.seconds) for visit in steady]
    return joined(rates, [visit.seconds for visit in steady], off)


def tokens_per_step(requests: Sequence[RequestRecord]) -> LogEstimate:
    """Output tokens per step of the engine, from prompts; exactly 1 without speculation."""
    return ratio([r.completion_tokens for r in requests], [steps(r) for r in requests])


def precise(requests: Sequence[RequestRecord], load: Load, target: float) -> bool:
    """Whether the rate of the requests answered so far is known within ``target`` (relative half-width).

    A narrow interval of a short time is luck, so it takes LEAST_ROUNDS times the duration of a request.
    """
    if any(r.error for r in requests):
        return False
    start, _ = steady_window(requests, load)
    done = sorted(r.done_s for r in requests)
    # The last completions let requests begin that are still under way and unknown here.
    window = (start, done[-min(len(done), max(load.concurrency, 1))])
    duration = sum(r.e2e_s for r in requests) / len(requests)
    if window[1] - start < LEAST_ROUNDS * duration:
        return False
    return rate_estimate([Stretch(requests, *window)]).relative_half_width <= target


def _drift(steady: Sequence[Stretch], tolerance: float) -> tuple[Interval, bool]:
    """The second halves' step rate over the first's, and whether it surely moved by more than the tolerance.

    Steps, not tokens: the rate of a speculating server scatters with the prompts, and their becoming harder is no
    fault of the server's.
    """
    halves = [
        [replace(visit, start=sum(visit.window) / 2) for visit in steady],
        [replace(visit, end=sum(visit.window) / 2) for visit in steady],
    ]
    if not all(step_progress(v.requests, v.window).sum() for half in halves for v in half):
        return LogEstimate(1.0, UNKNOWN_ERROR, 1.0).interval, False
    later, earlier = (step_rate(half) for half in halves)
    drift = quotient(later, earlier).interval
    surely = drift.low > 1 or drift.high < 1
    return drift, surely and abs(math.log(drift.value)) > math.log1p(tolerance)


def require_answers(requests: Sequence[RequestRecord]) -> None:
    """Raises FailedLoadError unless every request was answered, naming the first cause."""
    if not requests:
        raise FailedLoadError("no request was answered")
    failed = [r for r in requests if r.error]
    if failed:
        raise FailedLoadError(
            f"{len(failed)} of {len(requests)} requests failed at {failed[0].load}; the first: {failed[0].error}"
        )


def require_clean(requests: Sequence[RequestRecord], expected: Expectation) -> None:
    """Raises FailedLoadError where a load has no value, naming the first cause."""
    require_answers(requests)
    cached = [r for r in requests if r.cached_tokens]
    if cached and not expected.prefix_cache:
        raise FailedLoadError(
            f"{len(cached)} requests were served from the prefix cache, which must be off "
            f"(the first: {cached[0].cached_tokens} of {cached[0].prompt_tokens} tokens of prompt {cached[0].prompt!r})"
        )
    mute = [
        r for r in requests if expected.speculates and r.verify_rounds is None and r.completion_tokens > 1
    ]
    if mute:
        raise FailedLoadError(f"{len(mute)} requests came without speculation counters: no accept length")


def _in_one_piece(request: RequestRecord) -> bool:
    """Whether the whole stream came at once: then nothing is known of the time between its tokens."""
    return request.completion_tokens > 1 and len(set(request.arrival_s)) == 1


def _stream_notes(requests: Sequence[RequestRecord], expected: Expectation) -> tuple[str, ...]:
    """Says where the stream's chunks are not the server's steps; the token counts are right all the same."""
    whole = sum(map(_in_one_piece, requests))
    if whole > MOST_MERGED * len(requests):
        known = "those of the others" if whole < len(requests) else "upper bounds"
        return (
            f"ONE PIECE: {whole / len(requests):.0%} of the answers came all at once, so that their time to first "
            f"token is the whole time, and step times are {known}; the client was starved, or something between server "
            "and client gathers the stream",
        )
    later = [n for r in requests for n in r.arrival_tokens[1:]]
    merged = sum(n > expected.most_per_step for n in later)
    if merged <= MOST_MERGED * len(later):
        return ()
    return (
        f"MERGED CHUNKS: {merged / len(later):.0%} of the stream's chunks hold more tokens (up to {max(later)}) than "
        f"a step gives ({expected.most_per_step}); something between server and client gathers them",
    )


def after_the_end(outputs: Mapping[str, Sequence[int]], end_tokens: frozenset[int]) -> tuple[str, ...]:
    """Says how much of the output came after an end of sequence: such text is easy to draft."""
    total = sum(len(tokens) for tokens in outputs.values())
    beyond = 0
    for tokens in outputs.values():
        first = next((i for i, token in enumerate(tokens) if token in end_tokens), None)
        beyond += len(tokens) - first - 1 if first is not None else 0
    if not beyond:
        return ()
    return (
        f"AFTER THE END: {beyond / total:.0%} of the output tokens come after an end of sequence (ignore_eos?); "
        "such text is easy to draft, and no user would see it",
    )
