"""The ``sweeper`` command: thin; every command reads its input, calls one room and prints."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sweeper import __version__
from sweeper.check import CheckReport, check_study, usable_space
from sweeper.config import NAME, StudyConfig
from sweeper.errors import SweeperError
from sweeper.releases import warning_about
from sweeper.study_file import load_study_file

if TYPE_CHECKING:
    from sweeper.run_directory import RunDirectory
    from sweeper.study import Wishes

INTERRUPTED = 130
LOG_WIDTH = 140

app = typer.Typer(
    help="""Find the speculative-decoding settings of SGLang that pay, on your GPUs and your traffic.

    A study file (YAML) names a target model, draft checkpoints, the settings to try and the traffic. A sweep
    launches one SGLang server per distinct valid setting, measures it against the same server without
    speculation, and says where speculation pays, by how much, how sure that is, and what to deploy.

    Start with:  sweeper check FILE   then:  sweeper run FILE   then:  sweeper export RUN
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)
testbed_app = typer.Typer(
    help="The CPU test bed: real SGLang and tiny models on a machine without a GPU.", no_args_is_help=True
)
app.add_typer(testbed_app, name="testbed")

console = Console()
if not console.is_terminal and "COLUMNS" not in os.environ:
    console.width = LOG_WIDTH  # a job's log has no edge at which tables would have to be cut
complaints = Console(stderr=True)

StudyFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="study file (YAML); examples in search_spaces/")
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="run directory, or a study's name under runs/")]
AllowLossy = Annotated[
    bool,
    typer.Option("--allow-lossy", help="let configs win that may change the target's output (flagged LOSSY)"),
]
AsJson = Annotated[bool, typer.Option("--json", help="print data instead; schema in docs/schemas/")]


class ExportFormat(str, Enum):
    sglang = "sglang"


@contextmanager
def complaining() -> Iterator[None]:
    """Bad input ends with its message and exit code 2."""
    try:
        yield
    except SweeperError as error:
        complaints.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sweeper {__version__}")
        raise typer.Exit()


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    pass


@app.command()
def check(file: StudyFile, as_json: AsJson = False) -> None:
    """Say what a study file would launch, without launching anything.

    Prints how many combinations were asked for, how many distinct valid configs remain, which requests run as
    the same effective config (for instance: topk 1 forces num_draft_tokens = num_steps + 1), which ones SGLang
    would refuse, the flags that both arms share and why, and the server command of the first trial. Flags in
    engine.extra_args are looked up in the installed SGLang. Exit code 2 if the file has an error.

    Example:  sweeper check search_spaces/cpu_tiny.yaml
    """
    with complaining():
        report = check_study(load_study_file(file))
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        _print_check(report)


def _print_check(report: CheckReport) -> None:
    console.print(
        f"[bold]{report.study}[/]: {report.asked} combinations asked for, [bold]{len(report.candidates)}[/] distinct "
        f"valid configs, {len(report.merges)} merged, {len(report.rejections)} rejected",
        highlight=False,
    )
    table = Table("config", "requested as", "what SGLang changes")
    for candidate in report.candidates:
        changed = candidate.requested != candidate.effective
        table.add_row(
            str(candidate.effective),
            candidate.requested.shape if changed else "",
            "\n".join(candidate.overrides),
        )
    console.print(table)
    for title, rows in (
        (
            "Merged: not launched, since they run as another config",
            [(str(m.requested), f"runs as {m.effective.shape}", m.rule) for m in report.merges],
        ),
        (
            "Rejected: SGLang would refuse or crash",
            [(str(r.requested), "", r.rule) for r in report.rejections],
        ),
    ):
        if rows:
            table = Table("requested", "", "rule", title=title, title_justify="left")
            for row in rows:
                table.add_row(*row)
            console.print(table)
    pins = Table("flag", "value", "why", title="Pinned on the baseline and every trial", title_justify="left")
    for pin in report.pins:
        pins.add_row(f"--{pin.flag}", "" if pin.value is True else str(pin.value), pin.why)
    if report.resolved_at_start:
        pins.add_row(
            "attention backend, page size, memory share", "", "at the start, on the servers' own node"
        )
    console.print(pins)
    console.print(
        f"{report.launches} launches and the baseline, {report.prompts} to {report.most_prompts or '?'} requests each; "
        f"then {report.confirming} launches to confirm; SGLang {report.engine_version}",
        highlight=False,
    )
    for note in report.prompt_notes:
        console.print(f"Prompts: {escape(note)}", highlight=False)
    for warning in report.warnings:
        console.print(f"[yellow]{escape(warning)}[/]", highlight=False)
    console.print("Server command of the first one:", highlight=False)
    console.print(f"  {report.command}", highlight=False, markup=False, soft_wrap=True)


@app.command()
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
    from sweeper.run_directory import RunDirectory
    from sweeper.server.command import launch_environment
    from sweeper.server.install import installed_version
    from sweeper.server.setup import EngineSetup, shared_pins
    from sweeper.study import Sweep
    from sweeper.workload.chat import raw_warning
    from sweeper.workload.prompts import needs_tokenizer, plan_prompts, read_conversations

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    conversations = read_conversations(config)
    if ray_address is None or not needs_tokenizer(config, conversations):
        plan_prompts(config, conversations)  # too few prompts show before anything starts
    if ray_address is None:  # one machine: an empty space shows before anything starts
        version = installed_version(config.engine.python, launch_environment(config).get("PYTHONPATH"))
        usable_space(config, EngineSetup(version, pins=shared_pins(config, version)))
    directory = RunDirectory(Path(config.runs_dir) / config.study)
    interrupted = False
    with directory.driven():
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
                sweep = Sweep(plan, space.candidates, directory, servers, view)
                console.print(
                    f"[bold]{config.study}[/]: {sweep.planned()} of {len(space.candidates)} configs, "
                    f"{servers.size()} server(s) at a time, SGLang {plan.setup.version}",
                    highlight=False,
                )
                try:
                    sweep.drive(wishes)
                except KeyboardInterrupt:
                    interrupted = True
        _conclude(config, directory, wishes.allow_lossy)
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


@app.command()
def report(
    run: Run,
    recompute: Annotated[
        bool,
        typer.Option(
            "--recompute", help="compute load points and speedups again from the raw requests, and compare"
        ),
    ] = False,
    allow_lossy: AllowLossy = False,
    as_json: AsJson = False,
) -> None:
    """Print a run's ranking, speedups and break-even, and write trials.csv. Works while the sweep runs, too.

    Examples:
      sweeper report cpu_tiny
      sweeper report cpu_tiny --recompute
    """
    from reports.study_report import build_report
    from reports.tables import long_table
    from reports.terminal import print_report
    from sweeper.findings import recomputed_findings
    from sweeper.run_directory import find_run, read_run

    with complaining():
        directory = find_run(run)
        config, study = read_run(directory)
        again = None
        if recompute:
            again = recomputed_findings(study, directory, config.measurement.drift_tolerance)
        findings = again.findings if again else None
        found = build_report(config, study, findings, allow_lossy)
        long_table(found).to_csv(directory.table, index=False)
    if as_json:
        typer.echo(found.model_dump_json(indent=2))
    else:
        print_report(found, console)
        if again:
            console.print(
                f"\nComputed again from requests/: {again.numbers} numbers, which differ from the stored ones by "
                f"{again.largest_difference:.1e} at most",
                highlight=False,
            )
        console.print(f"\nTable: {directory.table}", highlight=False)


@app.command()
def export(
    run: Run,
    format: Annotated[ExportFormat, typer.Option(help="what the file is for")] = ExportFormat.sglang,
    allow_lossy: AllowLossy = False,
    as_json: AsJson = False,
) -> None:
    """Write the winner as a deployment file, with its evidence in comments; the plain server if nothing pays.

    Example:  sweeper export cpu_tiny --format sglang
              python -m sglang.launch_server --config runs/cpu_tiny/deploy/sglang.yaml
    """
    from reports.exports import write_export
    from reports.study_report import build_report
    from sweeper.run_directory import find_run, read_run

    with complaining():
        directory = find_run(run)
        config, study = read_run(directory)
        found = build_report(config, study, allow_lossy=allow_lossy)
        done = write_export(config, found, directory, format.value)
    if as_json:
        typer.echo(done.model_dump_json(indent=2))
    elif done.speculates:
        console.print(f"{done.path}: {done.config}", highlight=False)
    else:
        console.print(f"{done.path}: no speculation, since no config is clearly faster", highlight=False)


@testbed_app.command("build")
def testbed_build() -> None:
    """Train the tiny target and drafts (some minutes on two cores, once) into the cache outside the work tree."""
    from sweeper.testbed.build import build
    from sweeper.testbed.environment import cache_dir
    from sweeper.testbed.progress import shown

    with complaining(), shown() as show:
        manifest = build(cache_dir(), show)
    loss = manifest["quality"]["target_held_out_loss"]
    console.print(
        f"Test bed: {cache_dir()} (target's held-out loss {loss:.2f} nats per token)", highlight=False
    )


@testbed_app.command("env")
def testbed_env() -> None:
    """Print the environment a server needs on the test bed:  env $(sweeper testbed env) python -m sglang...."""
    from sweeper.testbed.environment import server_environment

    for name, value in server_environment().items():
        typer.echo(f"{name}={value}")


@testbed_app.command("path")
def testbed_path() -> None:
    """Print the directory of the test bed's models."""
    from sweeper.testbed.environment import cache_dir

    typer.echo(cache_dir())


if __name__ == "__main__":
    sys.exit(app())
