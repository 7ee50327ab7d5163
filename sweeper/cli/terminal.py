"""What every command shares: the console, its arguments' types, and how an error ends it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from reports.console import SafeConsole
from sweeper.errors import SweeperError
from sweeper.secrets import Redactor, secrets_of

LOG_WIDTH = 140

console = SafeConsole()
if not console.is_terminal and "COLUMNS" not in os.environ:
    console.width = LOG_WIDTH  # a job's log has no edge at which tables would have to be cut
complaints = SafeConsole(stderr=True)

StudyFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="study file (YAML); examples in search_spaces/")
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="run directory, or a study's name under runs/")]
AllowLossy = Annotated[
    bool,
    typer.Option("--allow-lossy", help="let configs win that may change the target's output (flagged LOSSY)"),
]
NoPreflight = Annotated[
    bool,
    typer.Option(
        "--no-preflight", help="launch every draft, whatever its files tell beforehand (docs/drafts.md)"
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="print data instead; schema in docs/schemas/")]


@contextmanager
def complaining() -> Iterator[None]:
    """Bad input ends with its message and exit code 2; a message that quotes others may hold a secret of theirs."""
    try:
        yield
    except SweeperError as error:
        said = Redactor(secrets_of(os.environ))(str(error))
        complaints.print(f"[bold red]error:[/] {escape(said)}", highlight=False, soft_wrap=True)
        raise typer.Exit(2) from None


def tell(text: str) -> None:
    """Print a line as it is."""
    console.print(escape(text), highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    console.print(f"[yellow]{escape(text)}[/]", highlight=False, soft_wrap=True)
