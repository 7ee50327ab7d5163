"""The stand-alone probe: is a draft good at all, and would it be better with other hidden states than SGLang serves?

The draft runs outside SGLang, on texts whose hidden states are known, with the wiring that SGLang will serve and with
those that a training may have used by mistake. If another one is clearly better, that is what the draft was
trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from scipy.special import stdtrit
from torch import Tensor

from sweeper.analysis.intervals import LogEstimate, ratio
from sweeper.drafts.agreement import Counted, Text, agreement, total
from sweeper.drafts.probe_report import ProbeReport, WiringRow
from sweeper.drafts.served_draft import ServedDraft
from sweeper.drafts.wiring import Wiring, remedy
from sweeper.errors import SweeperError

DEPTH = 5
"""Draft steps; deeper ones add little to what tells wirings apart."""

LEAST_GAIN = 1.1
"""A better wiring accepts at least 1.1 times as many drafts per round; smaller gains are not what a mistake costs."""
LEAST_MORE = 0.1
"""And so many more: a draft that has hardly begun to learn is a little better off with many a wiring."""

CONFIDENCE = 0.05
"""Chance that any of the alternatives looks better though none is (Bonferroni: divided among them)."""


@dataclass(frozen=True)
class ProbeWork:
    """A draft, its names for the report, and the wirings to try beside the served one."""

    draft: ServedDraft
    embed: Callable[[Tensor], Tensor]
    alternatives: Sequence[Wiring]
    layers: int
    target_architecture: str
    depth: int = DEPTH


@dataclass(frozen=True)
class ProbeNames:
    draft: str
    target: str
    source: str
    notes: tuple[str, ...] = ()


def probe(
    work: ProbeWork, texts: Iterable[Text], names: ProbeNames, progress: Callable[[int], None] | None = None
) -> ProbeReport:
    """Judge every wiring on every text. ``progress`` is called with 1 after each text.

    Raises:
        SweeperError: there are fewer than two texts to draft in, so nothing can be said of the scatter.
    """
    wirings = [work.draft.wiring, *work.alternatives]
    counts: dict[Wiring, list[Counted]] = {wiring: [] for wiring in wirings}
    for text in texts:
        for wiring in wirings:
            counted = agreement(work.draft.head, work.embed, text, wiring, work.depth)
            if counted.rounds:
                counts[wiring].append(counted)
        if progress:
            progress(1)
    served = counts[work.draft.wiring]
    if len(served) < 2:
        raise SweeperError(f"{names.source}: {len(served)} texts with an answer are too few to judge a draft")
    return _report(work, counts, names)


def _report(work: ProbeWork, counts: dict[Wiring, list[Counted]], names: ProbeNames) -> ProbeReport:
    served = work.draft.wiring
    gains = {w: _gain(counts[w], counts[served]) for w in work.alternatives}
    ordered = sorted(work.alternatives, key=lambda w: -gains[w].value)
    own = total(counts[served])
    clear = [w for w in ordered if clearly_better(gains[w], own.tokens / own.rounds, len(gains))]
    trained_on = clear[0] if clear else None
    rows = [_row(w, counts[w], work, gains.get(w)) for w in (served, *ordered)]
    return ProbeReport(
        draft=names.draft,
        target=names.target,
        source=names.source,
        texts=len(counts[served]),
        positions=int(own.reached[0]),
        depth=work.depth,
        rows=rows,
        trained_on=trained_on.name(work.layers, served) if trained_on else None,
        verdict=_verdict(work, trained_on, rows),
        remedy=remedy(trained_on, served, work.layers, work.target_architecture) if trained_on else None,
        notes=list(names.notes),
    )


def _gain(ours: Sequence[Counted], served: Sequence[Counted]) -> LogEstimate:
    """Accept length over the served wiring's: the texts are the same, so only the rounds differ."""
    return ratio([c.rounds for c in served], [c.rounds for c in ours])


def clearly_better(gain: LogEstimate, served_accept_length: float, compared: int) -> bool:
    """Whether an alternative's gain is beyond chance among ``compared`` ones, and large enough to be a mistake's."""
    reach = float(stdtrit(gain.freedom, 1 - CONFIDENCE / compared)) * gain.error
    accepted, before = gain.value * served_accept_length - 1, served_accept_length - 1
    large = accepted >= max(LEAST_GAIN * before, before + LEAST_MORE)
    return large and math.log(gain.value) > reach


def _row(wiring: Wiring, counts: Sequence[Counted], work: ProbeWork, gain: LogEstimate | None) -> WiringRow:
    summed = total(counts)
    return WiringRow(
        wiring=wiring.name(work.layers, work.draft.wiring),
        accept_length=ratio([c.tokens for c in counts], [c.rounds for c in counts]).interval,
        expected_accept_length=summed.expected_accept_length,
        conditional=summed.conditional,
        marginal=summed.marginal,
        on_true_text=summed.on_true_text,
        over_served=gain.interval if gain else None,
    )


def _verdict(work: ProbeWork, trained_on: Wiring | None, rows: Sequence[WiringRow]) -> str:
    served = rows[0]
    if trained_on is None:
        return (
            f"No other wiring does clearly better than the served {served.wiring}: a chain of {work.depth} accepts "
            f"{served.accept_length:.2f} tokens per round outside SGLang."
        )
    better = trained_on.name(work.layers, work.draft.wiring)
    row = next(row for row in rows if row.wiring == better)
    return (
        f"This draft was trained on {better}; SGLang serves {served.wiring}. With what it was trained on, a chain of "
        f"{work.depth} accepts {row.accept_length:.2f} tokens per round, as served {served.accept_length:.2f}."
    )
