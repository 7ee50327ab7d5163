"""``sweeper dashboard``: a run's study in optuna-dashboard."""

from __future__ import annotations

from typing import Annotated

import typer

from sweeper.cli.terminal import Run, complaining, tell
from sweeper.errors import SweeperError


def dashboard(
    run: Run,
    port: Annotated[int, typer.Option(min=1, max=65535, help="port to listen on")] = 8080,
    host: Annotated[
        str, typer.Option(help="address to listen on; others than this machine can change the study then")
    ] = "127.0.0.1",
) -> None:
    """Show a run's Optuna study in optuna-dashboard, until Ctrl-C. Works while the sweep runs, too.

    Values are speedups over no speculation at the objective load(s); intermediate values are the speedups by
    load; user attributes hold the numbers; notes tell why a trial failed or was pruned. The dashboard can
    also delete and change what it shows, and asks nobody who he is: leave it on 127.0.0.1 (ssh -L
    8080:127.0.0.1:8080 HOST from elsewhere).

    Needs: pip install 'sweeper[dashboard]'
    Example:  sweeper dashboard cpu_tiny --port 8081
    """
    from sweeper.runs.directory import find_run, read_run

    with complaining():
        try:
            from optuna_dashboard import run_server
        except ImportError:
            raise SweeperError(
                "optuna-dashboard is not installed: pip install 'sweeper[dashboard]'"
            ) from None
        _, study = read_run(find_run(run))
        tell(
            f"http://{host}:{port}/dashboard/studies/{study._study_id} shows study {study.study_name!r}; Ctrl-C ends it"
        )
        try:
            run_server(study._storage, host=host, port=port)
        except OSError as error:
            raise SweeperError(
                f"{host}:{port} cannot be listened on: {error}; choose another --port"
            ) from None
        except KeyboardInterrupt:
            return
