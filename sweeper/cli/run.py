"""``sweeper run``: drive a sweep, from connecting to Ray to the exported winner."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from sweeper.check import usable_space
from sweeper.cli.terminal import AllowLossy, StudyFile, complaining, console
from sweeper.config import NAME, StudyConfig
from sweeper.errors import SweeperError
from sweeper.releases import warning_about
from sweeper.study_file import load_study_file

if TYPE_CHECKING:
    from sweeper.run_directory import RunDirectory
    from sweeper.study import Wishes

INTERRUPTED = 130


def run(
    file: StudyFile,
    name: Annotated[
        str | None, typer.Option(help="study name; default: the file's. A new name starts a new study")
    ] = None,
    max_trials: Annotated[int | None, typer.Option(min=1, help="override search.max_trials")] = None,
    remeasure_baseline: Annotated[
        bool, typer.Option("--remeasure-baseline", help="ignore the cached baseline")
    ] = False,
    ray_address: Annotated[
        str | None,
        typer.Option(envvar="RAY_ADDRESS", help="Ray cluster; default: a local one for this run"),
    ] = None,
    allow_lossy: AllowLossy = False,
) -> None:
    """Run a sweep, or continue it: finished trials stay, interrupted ones come first.

    Measures the baseline (or takes it from the cache, checks it and says so), launches one server per config, measures
    the best ones and the baseline again in turns, and writes everything to runs/NAME/: study.db (Optuna), study.yaml,
    trials.csv, requests/, logs/, deploy/. Ctrl-C stops the servers and leaves a study that the same command continues.

    Examples:
      sweeper run search_spaces/cpu_tiny.yaml
      sweeper run search_spaces/llama31_8b_eagle3.yaml --name monday --ray-address auto
      ray job submit --working-dir . -- python -m sweeper run search_spaces/llama31_8b_eagle3.yaml
    """
    from sweeper.study import Wishes

    with complaining():
        config = _with_options(load_study_file(file), name, max_trials)
        _run(config, ray_address, Wishes(remeasure_baseline, allow_lossy))


def _with_options(config: StudyConfig, name: str | None, max_trials: int | None) -> StudyConfig:
    if name and not NAME.fullmatch(name):
        raise SweeperError(f"--name {name}: letters, digits, '.', '_' and '-' only, at most 64")
    search = config.search.model_copy(update={"max_trials": max_trials or config.search.max_trials})
    return config.model_copy(update={"study": name or config.study, "search": search})


def _run(config: StudyConfig, ray_address: str | None, wishes: Wishes) -> None:
    """Connect to Ray, drive the sweep, print the report and export the winner."""
    import optuna

    from actors.cluster import cluster, trial_plan
    from actors.pool import ServerPool
    from reports.live import LiveView
    from sweeper.driver import driving
    from sweeper.server.command import launch_environment
    from sweeper.server.install import installed_version
    from sweeper.server.setup import EngineSetup, shared_pins
    from sweeper.study import Sweep
    from sweeper.surroundings import Surroundings
    from sweeper.workload.chat import raw_warning
    from sweeper.workload.prompts import needs_tokenizer, plan_prompts, read_conversations

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    conversations = read_conversations(config)
    if ray_address is None or not needs_tokenizer(config, conversations):
        plan_prompts(config, conversations)  # too few prompts show before anything starts
    if ray_address is None:  # one machine: an empty space shows before anything starts
        version = installed_version(config.engine.python, launch_environment(config).get("PYTHONPATH"))
        usable_space(config, EngineSetup(version, pins=shared_pins(config, version)))
    path = Path(config.runs_dir) / config.study
    interrupted = False
    with driving(
        config, path, lambda text: console.print(f"[yellow]{escape(text)}[/]", highlight=False)
    ) as driver:
        with cluster(ray_address, config):
            signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray sets its own when it starts
            with console.status("Looking at the installed SGLang, once per installation"):
                plan = trial_plan(config, conversations)
            space = usable_space(config, plan.setup)
            for warning in (warning_about(plan.setup.version), raw_warning(config, conversations)):
                if warning:
                    console.print(f"[yellow]{escape(warning)}[/]", highlight=False)
            for note in plan.prompts.notes:
                console.print(f"Prompts: {escape(note)}", highlight=False)
            with ServerPool(plan) as servers, LiveView(console) as view:
                sweep = Sweep(plan, space.candidates, Surroundings(driver, servers, view), wishes)
                console.print(
                    f"[bold]{config.study}[/]: {sweep.planned()} of {len(space.candidates)} configs, "
                    f"{servers.size()} server(s) at a time, SGLang {plan.setup.version}",
                    highlight=False,
                )
                try:
                    sweep.drive()
                except KeyboardInterrupt:
                    interrupted = True
        _conclude(config, driver.run, wishes.allow_lossy)
    if interrupted:
        console.print(f"Interrupted; the same command continues study {config.study!r}.", highlight=False)
        raise typer.Exit(INTERRUPTED)


def _conclude(config: StudyConfig, directory: RunDirectory, allow_lossy: bool) -> None:
    """Print and write what is known, complete or not."""
    from reports.exports import write_export
    from reports.study_report import build_report
    from reports.tables import long_table
    from reports.terminal import print_report
    from sweeper.run_directory import read_run

    _, study = read_run(directory)
    report = build_report(config, study, allow_lossy=allow_lossy)
    print_report(report, console)
    long_table(report).to_csv(directory.table, index=False)
    console.print(f"\nFiles: {directory.path}/ (study.db, trials.csv, requests/, logs/)", highlight=False)
    if report.finished:
        export = write_export(config, report, directory, "sglang")
        prefix = "env $(sweeper testbed env) " if config.engine.device == "cpu" else ""
        command = f"{prefix}python -m sglang.launch_server --config {export.path}"
        console.print(f"Deploy: {command}", highlight=False, soft_wrap=True)
    if report.trials and all(t.state == "FAILED" for t in report.trials):
        raise typer.Exit(1)
