"""SGLang's adaptive speculation, put together from the best chain per load, where no single config is the best.

SGLang then switches between chains, and to no drafting, by the size of the running batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from reports.study_report import LoadRow, StudyReport, TrialRow
from sweeper.adaptive import AdaptivePolicy, policy_of_best
from sweeper.errors import SweeperError

ALGORITHMS = ("EAGLE", "EAGLE3")


@dataclass(frozen=True)
class AdaptiveChoice:
    """One draft's best chains: ``trials`` by concurrency, None where not drafting is best there."""

    policy: AdaptivePolicy
    algorithm: str
    draft: str
    trials: Mapping[int, TrialRow | None]

    @property
    def widest(self) -> TrialRow:
        """The trial with the longest chain: its flags hold for all."""
        return max((t for t in self.trials.values() if t), key=lambda t: t.config.num_steps)

    @property
    def grid(self) -> str:
        """The line of a study file that has this policy measured."""
        return (
            f"{{algorithm: {self.algorithm}, drafts: {self.draft}, num_steps: {max(self.policy.steps)}, "
            f'adaptive: "{self.policy}"}}'
        )


def adaptive_choice(report: StudyReport, allow_lossy: bool) -> AdaptiveChoice:
    """The draft whose chains, each at its best loads, are fastest over all loads.

    A chain counts where it is surely faster than no speculation; elsewhere 0 steps stand for that.

    Raises:
        SweeperError: no chain of EAGLE or EAGLE3 pays anywhere, or one choice is the best everywhere.
    """
    chains = [
        t
        for t in report.trials
        if t.config.algorithm in ALGORITHMS
        and t.config.topk == 1
        and t.config.option("adaptive") is None
        and t.state in ("COMPLETE", "PRUNED")
        and (allow_lossy or not t.lossy)
    ]
    groups: dict[tuple[str, str], list[TrialRow]] = {}
    for trial in chains:
        groups.setdefault((trial.config.algorithm, trial.config.draft), []).append(trial)
    levels = sorted({base.concurrency for base in report.baseline if base.concurrency})
    found = {key: {level: _best(trials, level) for level in levels} for key, trials in groups.items()}
    best = max(found, key=lambda key: _gain(found[key]), default=None)
    if best is None or not any(found[best].values()):
        raise SweeperError(
            f"study {report.study!r}: no chain (topk 1) of {' or '.join(ALGORITHMS)} surely pays at any load, so there "
            "is nothing to adapt; sweeper export --format sglang writes the server without speculation"
        )
    trials = {level: pair[0] if pair else None for level, pair in found[best].items()}
    policy = policy_of_best([(level, t.config.num_steps if t else 0) for level, t in trials.items()])
    if len(policy.slots) == 1:
        raise SweeperError(
            f"study {report.study!r}: {policy.steps[0]} steps are best at every load, so there is nothing to adapt; "
            "use another format"
        )
    return AdaptiveChoice(policy, *best, trials)


def _best(trials: list[TrialRow], concurrency: int) -> tuple[TrialRow, float] | None:
    """The fastest chain that surely pays at a concurrency, with its speedup; buckets of input lengths count alike."""
    able = []
    for trial in trials:
        rows = [r.best_known for r in trial.loads if r.concurrency == concurrency and " warm" not in r.load]
        if rows and math.prod(row.low for row in rows) > 1:
            able.append((trial, math.prod(row.value for row in rows) ** (1 / len(rows))))
    return max(able, key=lambda pair: pair[1], default=None)


def _gain(best: Mapping[int, tuple[TrialRow, float] | None]) -> float:
    """Geometric mean of the speedups over all loads, 1 where nothing pays."""
    return math.prod(pair[1] if pair else 1.0 for pair in best.values()) ** (1 / max(len(best), 1))


def adaptive_notes(report: StudyReport, chosen: AdaptiveChoice) -> list[str]:
    """Provenance: which trial stands for which load; JSON has no comments, so the server's YAML beside it says it."""
    lines = [
        f"Written by sweeper from study {report.study!r}, {report.created_at}.",
        f"Adaptive speculation, {chosen.algorithm} {chosen.draft}, by running batch: {chosen.policy}.",
        "UNCONFIRMED as a whole, exported on request; put together from the best chain per load:",
    ]
    for concurrency, trial in chosen.trials.items():
        if trial is None:
            lines.append(f"  concurrency {concurrency}: no drafting, since no chain surely pays there")
            continue
        rows = [row for row in trial.loads if row.concurrency == concurrency]
        lines += [f"  {row.load}: trial {trial.number}, {trial.config}: {_said(row)}" for row in rows]
    lines += [
        "Switching costs memory and start-up time (a set of graphs per chain), and with 0 steps the draft still",
        f"follows every batch. To have it measured, add to the study's grids: {chosen.grid}",
        f"Measured on {report.hardware} with SGLang {report.engine_version}, target {report.model}.",
        "Holds for this hardware, engine version and traffic; measure again when one changes.",
    ]
    return lines


def _said(row: LoadRow) -> str:
    how = "confirmed" if row.confirmed else "in the search"
    return f"{row.best_known:.3f} {how}, accept length {row.accept_length.value:.3f}"
