"""Candidates whose launch could teach nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sweeper.drafts.preflight import DraftReport, failing
from sweeper.records import TrialRecord
from sweeper.server.failures import concerns
from sweeper.speculation import SpeculationConfig


def pointless(
    untried: Collection[SpeculationConfig],
    ended: Sequence[tuple[int, TrialRecord]],
    preflight: Sequence[DraftReport] = (),
) -> dict[SpeculationConfig, str]:
    """The configs to leave out for what trials came to, and why. ``ended``: their records, by number.

    One would fail as another did (a draft that cannot load fails all its configs), or it is what the server of
    another trial really ran, or preflight found an error in its draft. This follows from the stored trials and the
    drafts' files alone, so a resumed study skips the same ones, but for a draft that was mended.
    """
    ran = {record.effective: number for number, record in ended if not record.failure}
    found = failing(preflight, untried)
    found |= {config: f"is what the server of trial {ran[config]} ran" for config in untried if config in ran}
    for number, record in ended:
        if record.failure:
            found |= {config: why for config in untried if (why := _reason(config, number, record))}
    return found


def _reason(config: SpeculationConfig, number: int, record: TrialRecord) -> str:
    """Why a failed trial makes the launch of another config pointless; empty if it does not."""
    if record.failure and concerns(record.failure, record.effective, config):
        return f"fails as trial {number} did: {record.failure.kind.value}: {record.failure.message}"
    return ""
