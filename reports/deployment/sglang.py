"""The YAML that ``python -m sglang.launch_server --config FILE`` takes."""

from __future__ import annotations

from collections.abc import Iterable

import yaml

from reports.study_report import StudyReport, TrialRow
from sweeper.config import StudyConfig
from sweeper.printable import one_line
from sweeper.records import Load
from sweeper.server.setup import EngineSetup, Flags, server_flags
from sweeper.speculation import NO_SPECULATION

BENCHMARK_ONLY = frozenset(
    ["disable-radix-cache", "random-seed", "incremental-streaming-output", "stream-output"]
)
"""Flags that made the arms comparable; deploying does not need them."""


def sglang_yaml(config: StudyConfig, report: StudyReport, trial: TrialRow | None) -> str:
    """Server flags of a trial (None: no speculation) under comments with the evidence for them."""
    setup = EngineSetup(report.engine_version, pins=tuple(trial.pins if trial else report.pins))
    flags = server_flags(config, trial.config if trial else NO_SPECULATION, setup)
    kept: Flags = {name: value for name, value in flags.items() if name not in BENCHMARK_ONLY}
    notes = [
        *evidence(report, trial),
        f"max-running-requests is the highest concurrency measured ({max(config.workload.concurrency)});",
        "raise it for more, after measuring there.",
    ]
    if config.engine.env:
        names = ", ".join(f"{name}={value}" for name, value in config.engine.env.items())
        notes.append(f"The server was measured with this environment: {names}")
    if config.engine.device == "cpu":
        notes.append("On the CPU test bed start it under: env $(sweeper testbed env)")
    return commented(notes) + yaml.safe_dump(kept, sort_keys=False, default_flow_style=False)


def commented(notes: Iterable[str]) -> str:
    """Notes as YAML comments, each on a line of its own: a line break in one would end the comment, so it is shown."""
    return "".join(f"# {one_line(note)}\n" for note in notes)


def evidence(report: StudyReport, trial: TrialRow | None) -> list[str]:
    """Where a deployment config comes from and how far it holds."""
    lines = [f"Written by sweeper from study {report.study!r}, {report.created_at}."]
    if trial is None:
        lines.append("No speculation: no measured config was clearly faster than the plain server")
        lines.append(f"at {in_words(report.objective_loads)}.")
    else:
        lines.append(f"Trial {trial.number}: {trial.config}.")
        if trial.requested:
            lines.append(f"Requested as {trial.requested.shape}; the server runs {trial.config.shape}.")
        lines += [f"LOSSY, exported on request: {reason}." for reason in trial.lossy]
        lines.append("Speedup over no speculation [95 % interval], accept length:")
        for row in trial.loads:
            how = f"confirmed {row.confirmed:.3f}, in the search " if row.confirmed else ""
            lines.append(
                f"  {row.load}: {how}{row.speedup:.3f}; {row.output_tok_s.value:.1f} tok/s, "
                f"accept length {row.accept_length.value:.3f} (pays above {row.break_even_accept_length:.3f})"
            )
        if not trial.confirmed:
            lines.append("Not measured again: the best of many is too good by some luck.")
        for bucket, found in trial.break_even.items():
            lines.append(f"Break-even{f' at {bucket} input tokens' if bucket else ''}: {found}.")
        equal = {True: "equal the baseline's", False: "DIFFER from the baseline's", None: "were not compared"}
        lines.append(f"Temperature-0 outputs {equal[trial.outputs_equal]}.")
        lines += [f"Not equal on both arms: {difference}." for difference in trial.unequal]
    lines.append(f"Measured on {report.hardware} with SGLang {report.engine_version}, target {report.model},")
    lines.append(
        f"prompts {report.workload}, at most {report.max_new_tokens} new tokens, "
        f"temperature {report.temperature:g}."
    )
    lines += [f"Prompts: {note}." for note in report.prompt_notes]
    lines.append("Holds for this hardware, engine version and traffic; measure again when one changes.")
    return lines


def in_words(loads: list[str]) -> str:
    """``concurrency 1; concurrency 16, 512-1023 input tokens``"""
    return "; ".join(Load.parse(name).in_words() for name in loads)
