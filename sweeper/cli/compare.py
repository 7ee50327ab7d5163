"""``sweeper compare``: the same study on another SGLang, GPU or draft."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeper.cli.terminal import AllowLossy, AsJson, complaining, console, tell
from sweeper.errors import SweeperError

REGRESSED = 1


def compare(
    run_a: Annotated[
        str, typer.Argument(metavar="RUN_A", help="the run before: a directory, or a name in runs/")
    ],
    run_b: Annotated[str, typer.Argument(metavar="RUN_B", help="the run after")],
    fail_on_regression: Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="exit code 1 if anything is worse by more than this: 3% or 0.03"),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="also what did not change beyond noise")] = False,
    any_workload: Annotated[
        bool, typer.Option("--any-workload", help="compare although the prompts were not the same")
    ] = False,
    allow_lossy: AllowLossy = False,
    as_json: AsJson = False,
) -> None:
    """Say what changed between two runs beyond noise, regressions first.

    Configs are matched by algorithm, draft, steps, topk and draft tokens; where each run has one draft, of different
    names, those stand for each other. Compared are output tok/s (it counts only on the same hardware), the speedup
    over the run's own baseline, and the accept length, per load. A change is one if the intervals of both runs and
    the scatter of launches do not explain it, at 95 % for all numbers together. Configs that ran before and fail now,
    or that may change the outputs now, count as regressions, too.

    Examples:
      sweeper compare sglang_0_5_21 sglang_0_5_23
      sweeper compare main pull_request --fail-on-regression 3%
    """
    from reports.compare import compare as compared
    from reports.compare_terminal import print_comparison
    from reports.study_report import build_report
    from sweeper.runs.directory import find_run, read_run

    with complaining():
        tolerance = share(fail_on_regression) if fail_on_regression is not None else None
        before, after = (
            build_report(*read_run(find_run(run)), allow_lossy=allow_lossy) for run in (run_a, run_b)
        )
        found = compared(before, after, any_workload)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        print_comparison(found, console, everything)
    worse = found.regressions(tolerance) if tolerance is not None else []
    if worse:
        if not as_json:
            tell(f"\n{len(worse)} regression(s) beyond {tolerance:.1%}:")
            for line in worse:
                tell(f"  {line}")
        raise typer.Exit(REGRESSED)


def share(text: str) -> float:
    """``3%``, ``3 %`` or ``0.03``.

    Raises:
        SweeperError: it is none, or not within [0, 1).
    """
    number = text.strip().removesuffix("%").strip()
    try:
        value = float(number) / (100 if "%" in text else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise SweeperError(f"--fail-on-regression {text}: a share from 0 to below 1, as in 3% or 0.03")
    return value
