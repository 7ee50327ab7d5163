"""``sweeper record``: measure a whole space into a landscape."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sweeper.check import usable_space
from sweeper.cli.terminal import StudyFile, complaining, console, tell
from sweeper.study_file.reading import load_study_file

if TYPE_CHECKING:
    from sweeper.search.passes import Pass
    from sweeper.search.recorder import Goal, Progress

INTERRUPTED = 130


def record(
    file: StudyFile,
    out: Annotated[
        Path | None, typer.Option(help="the landscape; default: landscape.json beside the passes")
    ] = None,
    half_width: Annotated[
        float,
        typer.Option(min=0.001, max=0.5, help="of each rate's 95 % interval, relative, to launch until"),
    ] = 0.015,
    max_minutes: Annotated[
        float | None, typer.Option(min=0.1, help="begin no launch after this long; the same command goes on")
    ] = None,
    ray_address: Annotated[
        str | None, typer.Option(envvar="RAY_ADDRESS", help="Ray cluster; default: a local one for this run")
    ] = None,
) -> None:
    """Launch every config of a study until each rate is known well: a landscape, on which searches can be compared.

    All configs are measured once before any is measured again, in another order each time, and once in every eight
    times the server without speculation, which shows the machine's moods so that they can be taken out. Checkpoints of
    one draft share a launch (search.hot_swap; docs/search.md). Every measurement is kept in
    RUNS_DIR/STUDY.record/passes.jsonl as soon as it ends: Ctrl-C or --max-minutes stops, the same command goes on. The
    landscape is written at every stop and holds what is known so far, with its half-widths.

    Examples:
      sweeper record search_spaces/landscapes/cpu_eagle3.yaml --max-minutes 60
      sweeper bench-search runs/cpu_eagle3.record/landscape.json
    """
    from sweeper.search.recorder import Goal

    goal = Goal(half_width, 60 * max_minutes if max_minutes else float("inf"))
    with complaining():
        try:
            _record(file, out, goal, ray_address)
        except KeyboardInterrupt:
            console.print("Interrupted; the same command goes on.")
            raise typer.Exit(INTERRUPTED) from None


def _record(file: Path, out: Path | None, goal: Goal, ray_address: str | None) -> None:
    from actors.cluster import cluster, draft_reports, trial_plan
    from actors.pool import ServerPool
    from sweeper.drafts.preflight import preflight
    from sweeper.driver.drives import inside_job, run_path
    from sweeper.driver.holder import Holder
    from sweeper.driver.lock_file import locked, run_lock
    from sweeper.search.recorder import Recorder, write_what_there_is
    from sweeper.workload.prompts import read_conversations

    config = load_study_file(file)
    conversations = read_conversations(config)
    folder = run_path(config.runs_dir, f"{config.study}.record", inside_job())
    path = out or folder / "landscape.json"
    with locked(run_lock(folder), config.study, Holder.this_process(folder)), cluster(ray_address, config):
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray sets its own when it starts
        with console.status("Looking at the installed SGLang, once per installation"):
            plan = trial_plan(config, conversations)
        space = usable_space(config, plan.setup)
        looked_at = draft_reports if ray_address else preflight
        plan = replace(plan, preflight=looked_at(config, plan.setup, space.candidates))
        with ServerPool(plan) as servers:
            recorder = Recorder(plan, space.candidates, servers, folder, _tell)
            recorder.require_same_settings()
            tell(f"{config.study}: {len(space.candidates)} configs, {len(recorder.passes)} launches so far")
            try:
                recorder.record(goal)
            finally:
                if write_what_there_is(recorder, goal, path):
                    tell(f"Landscape: {path}")


def _tell(done: Pass, progress: Progress) -> None:
    rates = "  ".join(f"{load} {point.output_tok_s:.0f} tok/s" for load, point in done.points.items())
    if progress.notice:
        tell(progress.notice)
    how = "launch" if done.launched else "hot swap"
    tell(
        f"{how} {progress.launches}  {done.config}  {rates or _fault(done)}  "
        f"({progress.launched} of {progress.configs} configs launched, {progress.precise} known well enough)"
    )


def _fault(done: Pass) -> str:
    return f"{done.failure.value}: {done.why}" if done.failure else ""
