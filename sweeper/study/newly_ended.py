"""Looks at each trial of a study once, when it has ended: an ended trial never changes, and there may be thousands."""

from __future__ import annotations

from collections.abc import Sequence

from optuna.trial import FrozenTrial


class NewlyEnded:
    """Called with all trials of a study, in their order, returns those that have ended since it was called last.

    ``open`` are the others: waiting or running. The work grows with these, not with the study.
    """

    def __init__(self) -> None:
        self.open: list[FrozenTrial] = []
        self._known = 0

    def __call__(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        looked_at = [trials[trial.number] for trial in self.open] + list(trials[self._known :])
        self._known = len(trials)
        self.open = [trial for trial in looked_at if not trial.state.is_finished()]
        return [trial for trial in looked_at if trial.state.is_finished()]
