"""Candidates whose launch could teach nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from optuna.trial import FrozenTrial

from sweeper.drafts.preflight import DraftReport, failing
from sweeper.records import TrialRecord
from sweeper.search.candidates import REQUEUE
from sweeper.server.failures import concerns
from sweeper.speculation import SpeculationConfig
from sweeper.stored_trial import record_of


def pointless(
    untried: Collection[SpeculationConfig],
    trials: Sequence[FrozenTrial],
    preflight: Sequence[DraftReport] = (),
) -> dict[SpeculationConfig, str]:
    """The configs to leave out, and why.

    One would fail as another did (a draft that cannot load fails all its configs), or it is what the server of
    another trial really ran, or preflight found an error in its draft. This follows from the stored trials and the
    drafts' files alone, so a resumed study skips the same ones, but for a draft that was mended.
    """
    ended = [
        (trial.number, record)
        for trial in trials
        if trial.state.is_finished() and not trial.user_attrs.get(REQUEUE)
        if (record := record_of(trial)) is not None
    ]
    seen = {
        config: why
        for config in untried
        for number, record in ended
        if (why := _reason(config, number, record))
    }
    return failing(preflight, untried) | seen


def _reason(config: SpeculationConfig, number: int, record: TrialRecord) -> str:
    """Why a trial makes the launch of another config pointless; empty if it does not."""
    if record.failure and concerns(record.failure, record.effective, config):
        return f"fails as trial {number} did: {record.failure.kind.value}: {record.failure.message}"
    if not record.failure and record.effective == config:
        return f"is what the server of trial {number} ran"
    return ""
