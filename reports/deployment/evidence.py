"""Where a deployment config comes from and how far it holds, as the comments that every export begins with."""

from __future__ import annotations

from collections.abc import Iterable

from reports.deployment.choice import Choice, confirmed
from reports.headline import in_words
from reports.study_report import LoadRow, StudyReport, TrialRow
from sweeper.printable import one_line


def commented(notes: Iterable[str], mark: str = "#") -> str:
    """Notes as comments, each on a line of its own: a line break in one would end the comment, so it is shown."""
    return "".join(f"{mark} {one_line(note)}\n" for note in notes)


def evidence(report: StudyReport, choice: Choice) -> list[str]:
    """Study, trial, effective config, speedup per load, break-even, engine, hardware, date, limits."""
    trial = choice.trial
    lines = [
        f"Written by sweeper from study {report.study!r}, {report.created_at}, for {in_words(choice.loads)}."
    ]
    lines += _of_the_config(trial, choice.loads) if trial else without_speculation(report, choice.loads)
    lines.append(f"Measured on {report.hardware} with SGLang {report.engine_version}, target {report.model},")
    lines.append(
        f"prompts {report.workload}, at most {report.max_new_tokens} new tokens, "
        f"temperature {report.temperature:g}."
    )
    lines += [f"Prompts: {note}." for note in report.prompt_notes]
    lines.append("Holds for this hardware, engine version and traffic; measure again when one changes.")
    highest = max((base.concurrency for base in report.baseline), default=0)
    if highest:
        lines.append(
            f"Not measured above concurrency {highest}: max-running-requests stops there; raise it after measuring."
        )
    return lines


def _of_the_config(trial: TrialRow, loads: list[str]) -> list[str]:
    lines = [f"Trial {trial.number}: {trial.config}."]
    if trial.requested:
        lines.append(f"Requested as {trial.requested.shape}; the server runs {trial.config.shape}.")
    lines += [f"LOSSY, exported on request: {reason}." for reason in trial.lossy]
    lines.append("Speedup over no speculation [95 % interval], accept length:")
    lines += [_of_a_load(row) for row in trial.loads]
    if not confirmed(trial, loads):
        lines.append("UNCONFIRMED, exported on request: the best of many is too good by some luck.")
    if trial.hot_swap:
        lines.append(f"In the search it was {trial.hot_swap}.")
    for bucket, found in trial.break_even.items():
        lines.append(f"Break-even{f' at {bucket} input tokens' if bucket else ''}: {found}.")
    equal = {True: "equal the baseline's", False: "DIFFER from the baseline's", None: "were not compared"}
    lines.append(f"Temperature-0 outputs {equal[trial.outputs_equal]}.")
    return lines + [f"Not equal on both arms: {difference}." for difference in trial.unequal]


def _of_a_load(row: LoadRow) -> str:
    how = f"confirmed {row.confirmed:.3f}, in the search " if row.confirmed else ""
    return (
        f"  {row.load}: {how}{row.speedup:.3f}; {row.output_tok_s.value:.1f} tok/s, "
        f"accept length {row.accept_length.value:.3f} (pays above {row.break_even_accept_length:.3f})"
    )


def without_speculation(report: StudyReport, loads: list[str]) -> list[str]:
    """Why not to speculate, and what accept length the nearest config would need."""
    lines = [
        f"No speculation: no config that was measured is clearly faster than the plain server at {in_words(loads)}."
    ]
    for load in loads:
        rows = [(row, trial) for trial in report.trials if (row := trial.at(load))]
        if not rows:
            continue
        row, nearest = max(rows, key=lambda pair: pair[0].standing)
        lossy = " (LOSSY)" if nearest.lossy else ""
        lines.append(
            f"  {load}: the nearest, {nearest.config}{lossy}, reaches {row.best_known:.3f}; its accept length "
            f"{row.accept_length.value:.3f} would have to exceed {row.break_even_accept_length:.3f}."
        )
    return lines
