"""``sweeper testbed``: real SGLang and tiny models on a machine without a GPU."""

from __future__ import annotations

import typer

from sweeper.cli.terminal import complaining, console

testbed_app = typer.Typer(
    help="The CPU test bed: real SGLang and tiny models on a machine without a GPU.", no_args_is_help=True
)


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
