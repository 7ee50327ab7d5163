"""``sweeper run``: drive a sweep, from connecting to Ray to the exported winner."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from sweeper.check import usable_space
from sweeper.cli.terminal import AllowLossy, NoPreflight, StudyFile, complaining, console, tell, warn
from sweeper.config import NAME, StudyConfig
from sweeper.driver.drives import add_drive, inside_job, read_drives, run_path
from sweeper.errors import SweeperError
from sweeper.releases import warning_about
from sweeper.study_file.reading import load_study_file

if TYPE_CHECKING:
    from sweeper.driver.driving import Driver
    from sweeper.runs.directory import RunDirectory
    from sweeper.runs.mirror import Mirror
    from sweeper.study.surroundings import Display
    from sweeper.study.sweep import Wishes

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
    no_preflight: NoPreflight = False,
) -> None:
    """Run a sweep, or continue it: finished trials stay, interrupted ones come first.

    Looks at the drafts' files first (preflight, as in `sweeper check`): a draft that cannot be served is left out.
    Measures the baseline (or takes it from the cache, checks it and says so), launches one server per config, measures
    the best ones and the baseline again in turns, and writes everything to runs/NAME/: study.db (Optuna), study.yaml,
    trials.csv, requests/, logs/, deploy/. It ends after search.max_trials launches or the whole space; with
    `search: {sampler: structural}`, which models what speculation costs and yields, as soon as one more launch promises
    less than search.min_expected_gain (docs/search.md). Ctrl-C stops the servers and leaves a study that the same
    command continues.

    Examples:
      sweeper run search_spaces/cpu_tiny.yaml
      sweeper run search_spaces/llama31_8b_eagle3.yaml --name monday --ray-address auto
      ray job submit --working-dir . -- python -m sweeper run search_spaces/llama31_8b_eagle3.yaml
    """
    from sweeper.driver.second_driver import refuse_second_driver

    with complaining():
        config = _with_options(load_study_file(file), name, max_trials)
        refuse_second_driver(config, run_path(config.runs_dir, config.study, inside_job()))
        from sweeper.study.sweep import Wishes

        try:
            _run(config, ray_address, Wishes(remeasure_baseline, allow_lossy, preflight=not no_preflight))
        except KeyboardInterrupt:
            console.print(f"Interrupted; the same command continues study {config.study!r}.", highlight=False)
            raise typer.Exit(INTERRUPTED) from None


def _with_options(config: StudyConfig, name: str | None, max_trials: int | None) -> StudyConfig:
    if name and not NAME.fullmatch(name):
        raise SweeperError(f"--name {name}: letters, digits, '.', '_' and '-' only, at most 64")
    search = config.search.model_copy(update={"max_trials": max_trials or config.search.max_trials})
    return config.model_copy(update={"study": name or config.study, "search": search})


def _run(config: StudyConfig, ray_address: str | None, wishes: Wishes) -> None:
    """Connect to Ray, drive the sweep, print the report and export the winner."""
    import optuna

    from actors.cluster import draft_reports, trial_plan
    from actors.pool import ServerPool
    from reports.live import LiveView, summary
    from reports.preflight import show_findings
    from sweeper.drafts.preflight import preflight, require_one_left
    from sweeper.runs.mirror import Mirror
    from sweeper.server.command import launch_environment
    from sweeper.server.install import installed_version
    from sweeper.server.setup import EngineSetup, shared_pins
    from sweeper.study.surroundings import Surroundings
    from sweeper.study.sweep import Sweep
    from sweeper.workload.chat import raw_warning
    from sweeper.workload.prompts import needs_tokenizer, plan_prompts, read_conversations

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    conversations = read_conversations(config)
    if ray_address is None or not needs_tokenizer(config, conversations):
        plan_prompts(config, conversations)  # too few prompts show before anything starts
    if ray_address is None:  # one machine: an empty space shows before anything starts
        version = installed_version(config.engine.python, launch_environment(config).get("PYTHONPATH"))
        setup = EngineSetup(version, pins=shared_pins(config, version))
        local = usable_space(config, setup).candidates
        if wishes.preflight:
            require_one_left(preflight(config, setup, local), local)
    path = run_path(config.runs_dir, config.study, inside_job())
    mirror = Mirror(config.artifacts, config.study) if config.artifacts else None
    with _driving_on(ray_address, config, path, mirror) as driver, _mirroring(mirror, path) as mirrored:
        with console.status("Looking at the installed SGLang, once per installation"):
            plan = trial_plan(config, conversations)
        space = usable_space(config, plan.setup)
        if wishes.preflight:
            looked_at = draft_reports if ray_address else preflight
            plan = replace(plan, preflight=looked_at(config, plan.setup, space.candidates))
            show_findings(plan.preflight, console)
            require_one_left(plan.preflight, space.candidates)
        for warning in (warning_about(plan.setup.version), raw_warning(config, conversations)):
            if warning:
                warn(warning)
        for note in plan.prompts.notes:
            console.print(f"Prompts: {escape(note)}", highlight=False)
        with ServerPool(plan) as servers, LiveView(console) as view:
            around = Surroundings(driver, servers, mirrored(view))
            sweep = Sweep(plan, space.candidates, around, wishes)
            console.print(
                f"[bold]{config.study}[/]: {sweep.planned()} of {len(space.candidates)} configs, "
                f"{servers.size()} server(s) at a time, SGLang {plan.setup.version}",
                highlight=False,
            )
            interrupted = False
            try:
                sweep.drive()
            except KeyboardInterrupt:
                interrupted = True
                if not driver.run.study_file.is_file():
                    raise  # so early that there is nothing to report
            tell(summary(replace(sweep.trials.tally(), stage="", eta_s=None)))
        _conclude(config, driver.run, wishes.allow_lossy)
    if interrupted:
        raise KeyboardInterrupt


@contextmanager
def _driving_on(
    ray_address: str | None, config: StudyConfig, path: Path, mirror: Mirror | None
) -> Iterator[Driver]:
    """Hold the cluster and the study.

    On one machine the study comes first, so that a second driver is refused before Ray starts. On a cluster its
    name there comes first, then the newest copy of its run directory, which may lie on another node.
    """
    from actors.cluster import cluster
    from actors.driver_lease import only_driver
    from actors.node_code import require_same_code
    from actors.run_location import bring_newest
    from sweeper.driver.driving import driving
    from sweeper.runs.archive import set_aside

    with ExitStack() as held:
        if ray_address:
            held.enter_context(cluster(ray_address, config))
            require_same_code(config)
            held.enter_context(only_driver(config.study))
            kept_on_nodes = inside_job() or Path(config.runs_dir).is_absolute()
            brought = bring_newest(path, config.runs_dir if kept_on_nodes else None, mirror)
            if brought:
                tell(f"{config.study} {brought}")
            driver = held.enter_context(driving(config, path, warn))
        else:
            if mirror and mirror.drives() > len(read_drives(path)):
                set_aside(path)
                mirror.pull(path)
                tell(f"{config.study} continues the run from {mirror.url}")
            driver = held.enter_context(driving(config, path, warn))
            held.enter_context(cluster(None, config))
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray sets its own when it starts
        add_drive(path)
        tell(f"Run directory: {os.uname().nodename}:{path.resolve()}")
        yield driver


@contextmanager
def _mirroring(mirror: Mirror | None, path: Path) -> Iterator[Callable[[Display], Display]]:
    """How to have the run directory copied to the mirror while a display is told what happens."""
    from sweeper.runs.mirror import Mirrored, MirrorThread

    if mirror is None:
        yield lambda display: display
        return
    with MirrorThread(mirror, path, warn) as thread:
        yield lambda display: Mirrored(display, thread)


def _conclude(config: StudyConfig, directory: RunDirectory, allow_lossy: bool) -> None:
    """Print and write what is known, complete or not."""
    from reports.deployment.choice import RefusedExportError, Wishes
    from reports.exports import write_export
    from reports.files import write_report_files
    from reports.study_report import build_report
    from reports.terminal import print_report
    from sweeper.runs.directory import read_run

    _, study = read_run(directory)
    report = build_report(config, study, allow_lossy=allow_lossy)
    print_report(report, console)
    write_report_files(report, directory)
    tell(f"\nFiles: {directory.path}/ (report/report.html, study.db, trials.csv, requests/, logs/)")
    if report.finished:
        try:
            export = write_export(config, report, directory, Wishes(allow_lossy=allow_lossy))
        except RefusedExportError as refusal:
            tell(f"Nothing exported: {refusal}")
        else:
            prefix = "env $(sweeper testbed env) " if config.engine.device == "cpu" else ""
            tell(f"Deploy: {prefix}python -m sglang.launch_server --config {shlex.quote(export.path)}")
            tell(
                f"Other formats: sweeper export {shlex.quote(str(directory.path))} --format ... (see --help)"
            )
    if report.trials and all(t.state == "FAILED" for t in report.trials):
        raise typer.Exit(1)
