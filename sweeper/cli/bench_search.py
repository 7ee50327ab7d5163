"""``sweeper bench-search``: search methods against each other on recorded landscapes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sweeper.cli.terminal import AsJson, complaining, complaints, console, tell
from sweeper.errors import SweeperError

if TYPE_CHECKING:
    from sweeper.search.landscape import Landscape

LANDSCAPES = Path("search_spaces/landscapes")


def bench_search(
    landscapes: Annotated[
        list[Path] | None,
        typer.Argument(help=f"landscape files, or folders of them; default: {LANDSCAPES}"),
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option(help="structural, tpe, gp, random, grid or script; default: all")
    ] = None,
    actors: Annotated[
        list[int] | None, typer.Option(min=1, help="servers at a time; default: 1 4 8 16")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="searches per method, landscape and load")] = 50,
    budget: Annotated[int, typer.Option(min=1, help="launches after which a search has failed")] = 60,
    out: Annotated[Path, typer.Option(help="folder of scores.jsonl, regret.svg and summary.md")] = Path(
        "runs/bench-search"
    ),
    scatter: Annotated[
        float | None,
        typer.Option(
            min=0, help="of a launch's rate, like 0.01; default: as single launches of the landscape"
        ),
    ] = None,
    max_minutes: Annotated[
        float | None, typer.Option(help="stop after this long; the same command goes on")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="processes")] = 1,
    as_json: AsJson = False,
) -> None:
    """Replay search methods on landscapes: how many launches until one is within 2 % of the best config?

    No server is started: a landscape holds what every config was measured to do. "script" is the order of SGLang's own
    bench_speculative.py. Each method plays every load at which some config pays; a search is over once a launch is
    within 2 % of the best, or after --budget launches.

    Examples:
      sweeper bench-search
      sweeper bench-search search_spaces/landscapes/synthetic_dense.json --method structural --method tpe --seeds 10
    """
    from reports.search_contest import print_summary, summaries_json, write_summary
    from sweeper.search.arena import Arena
    from sweeper.search.contest import METHODS, duels, summaries
    from sweeper.search.landscape import read_landscapes

    with complaining():
        for name in method or ():
            if name not in METHODS:
                raise SweeperError(f"--method {name}: known are {', '.join(METHODS)}")
        there = read_landscapes(landscapes or [LANDSCAPES])
        if scatter is not None:
            there = [scattering(landscape, scatter) for landscape in there]
        arena = Arena(there, out / "scores.jsonl", budget, jobs)
        with progress() as bar:
            task = bar.add_task("searches")
            left = arena.play(
                duels(there, method or METHODS, actors or (1, 4, 8, 16), seeds),
                lambda done, of: bar.update(task, completed=done, total=of),
                max_minutes,
            )
        table = list(summaries(arena.known))
        if as_json:
            typer.echo(summaries_json.dump_json(table, indent=1).decode())
        else:
            print_summary(table, there, console)
        write_summary(table, arena.known, there, out)
    if left:
        tell(f"{left} searches are left; the same command goes on")


def scattering(landscape: Landscape, scatter: float) -> Landscape:
    """Under a name of its own, so that its scores stand beside the others'."""
    other = {"name": f"{landscape.name} ±{scatter:.3g}"}
    return landscape.scattering(scatter).model_copy(update=other)


def progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=complaints, transient=True)
