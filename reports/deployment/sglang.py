"""The YAML that ``python -m sglang.launch_server --config FILE`` takes."""

from __future__ import annotations

import yaml

from reports.study_report import StudyReport, TrialRow
from sweeper.config import StudyConfig
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
    lines = [f"# {line}" for line in notes]
    return "\n".join(lines) + "\n" + yaml.safe_dump(kept, sort_keys=False, default_flow_style=False)


def evidence(report: StudyReport, trial: TrialRow | None) -> list[str]:
    """Where a deployment config comes from and how far it holds."""
    lines = [f"Written by sweeper from study {report.study!r}, {report.created_at}."]
    if trial is None:
        lines.append("No speculation: no measured config was clearly faster than the plain server")
        lines.append(f"at concurrency {', '.join(map(str, report.objective_loads))}.")
    else:
        lines.append(f"Trial {trial.number}: {trial.config}.")
        if trial.requested:
            lines.append(f"Requested as {trial.requested.shape}; the server runs {trial.config.shape}.")
        lines.append("Speedup over no speculation [95 % interval], accept length:")
        for row in trial.loads:
            lines.append(
                f"  concurrency {row.concurrency}: {row.speedup:.3f}, {row.output_tok_s.value:.1f} tok/s, "
                f"accept length {row.accept_length:.3f} (pays above {row.break_even_accept_length:.3f})"
            )
        lines.append(f"Break-even: {trial.break_even}.")
        equal = {True: "equal the baseline's", False: "DIFFER from the baseline's", None: "were not compared"}
        lines.append(f"Temperature-0 outputs {equal[trial.outputs_equal]}.")
        lines += [f"Not equal on both arms: {difference}." for difference in trial.unequal]
    lines.append(f"Measured on {report.hardware} with SGLang {report.engine_version}, target {report.model},")
    lines.append(f"at most {report.max_new_tokens} new tokens, temperature {report.temperature:g}.")
    lines.append("Holds for this hardware, engine version and traffic; measure again when one changes.")
    return lines
