"""The ``sweeper`` command: thin; every command reads its input, calls one room and prints."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeper import __version__
from sweeper.cli.bench_search import bench_search
from sweeper.cli.check import check
from sweeper.cli.compare import compare
from sweeper.cli.dashboard import dashboard
from sweeper.cli.diagnose import diagnose
from sweeper.cli.export import export
from sweeper.cli.jobs import fetch, logs, stop
from sweeper.cli.leaderboard import leaderboard
from sweeper.cli.probe import map_, probe
from sweeper.cli.record import record
from sweeper.cli.results import report
from sweeper.cli.run import run
from sweeper.cli.status import status
from sweeper.cli.submit import submit
from sweeper.cli.testbed import testbed_app

app = typer.Typer(
    help="""Find the speculative-decoding settings of SGLang that pay, on your GPUs and your traffic.

    A study file (YAML) names a target model, draft checkpoints, the settings to try and the traffic. A sweep
    launches one SGLang server per distinct valid setting, measures it against the same server without
    speculation, and says where speculation pays, by how much, how sure that is, and what to deploy.

    Start with:  sweeper check FILE   then:  sweeper run FILE   then:  sweeper export RUN
    On a Ray cluster:  sweeper submit FILE --address http://HEAD:8265
    """,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
)


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


for command in (
    check,
    probe,
    run,
    report,
    diagnose,
    leaderboard,
    dashboard,
    export,
    compare,
    submit,
    status,
    logs,
    stop,
    fetch,
    record,
    bench_search,
):
    app.command()(command)
app.command("map")(map_)
app.add_typer(testbed_app, name="testbed")
