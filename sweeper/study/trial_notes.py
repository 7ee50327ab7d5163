"""Notes and curves that optuna-dashboard and ``optuna.visualization`` show of a study, beside its attributes.

The dashboard keeps a note as system attributes of the study: its version, and its Markdown in parts of at most
NOTE_PART characters (``optuna_dashboard.save_note``, written here as well where that package is not
installed). Writing one again comes to the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import optuna

from sweeper.printable import printable
from sweeper.records import Load, TrialRecord
from sweeper.server.failures import ADVICE
from sweeper.storage.stored_trial import label

NOTE_PART = 2045
LOG_LINES = 15
LOG_CHARACTERS = 4000


def trial_note(number: int, record: TrialRecord) -> str:
    """What a person must know of a trial, as Markdown; empty where the numbers say it all."""
    parts = []
    if record.failure:
        kind = record.failure.kind
        parts += [f"**{kind.value}**: {_plain(record.failure.message)}", f"Next: {ADVICE[kind].next_step}"]
        tail = "\n".join(record.failure.log_tail[-LOG_LINES:])[-LOG_CHARACTERS:]
        if tail:
            # indented, so that nothing in a log ends the block
            block = "\n".join(f"    {line}" for line in printable(tail).split("\n"))
            parts.append(f"The end of logs/{label(number)}.log:\n\n{block}")
    if record.pruned:
        parts.append(f"**Pruned**: {_plain(record.pruned)}")
    if record.requested != record.effective:
        parts.append(f"Requested as {record.requested.shape}; the server runs {record.effective.shape}.")
    parts += [f"Changed by SGLang: {_plain(override)}" for override in record.overrides]
    parts += [f"Tried before: {a.failure.kind.value}, then {_plain(a.change)}" for a in record.attempts]
    if record.hot_swap:
        parts.append(f"Hot swap: {_plain(str(record.hot_swap))}")
    return "\n\n".join(parts)


def study_note(loads: Sequence[str], baseline: TrialRecord) -> str:
    """What the study's values are, as Markdown."""
    hardware = baseline.hardware.key if baseline.hardware else "?"
    steps = report_steps([point.load for point in baseline.load_points])
    rates = "\n".join(
        f"* {point.load}: {point.output_tok_s.value:.1f} tok/s (step {steps[point.load]})"
        for point in baseline.load_points
    )
    return (
        f"Values are speedups over the server without speculation at {', '.join(loads)}, on {hardware}, SGLang "
        f"{baseline.server_version}. Attributes hold the numbers of every load; intermediate values are the speedups "
        f"by load. Without speculation:\n\n{rates}"
    )


def report_steps(loads: Sequence[Load]) -> dict[Load, int]:
    """The step of each load's intermediate value: its concurrency, so that a plot of them is the speedup curve.

    Where that does not tell them apart (buckets, open loops), their place in the list.
    """
    levels = [load.concurrency for load in loads]
    if len(set(levels)) == len(levels) and all(levels):
        return dict(zip(loads, levels, strict=True))
    return {load: place for place, load in enumerate(loads)}


def write_note(study: optuna.Study, text: str, trial: optuna.Trial | None = None) -> None:
    """Keep a note of the study, or of a trial."""
    storage, study_id = study._storage, study._study_id
    for name, value in _note(text, trial._trial_id if trial else None):
        storage.set_study_system_attr(study_id, name, value)


def _note(text: str, trial_id: int | None) -> Iterator[tuple[str, int | str]]:
    """Its attributes; the version comes last and makes the others a note."""
    prefix = "dashboard:" if trial_id is None else f"dashboard:{trial_id}:"
    for number, start in enumerate(range(0, len(text), NOTE_PART)):
        yield f"{prefix}note_str:{number}", text[start : start + NOTE_PART]
    yield f"{prefix}note_ver", 1


def _plain(text: str) -> str:
    """Text in which Markdown finds no markup or link of its own."""
    escaped = printable(text)
    for character in "\\`*_[]<>#!":
        escaped = escaped.replace(character, f"\\{character}")
    return escaped
