"""``gpusize report``: makes the derived files of earlier runs again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EPILOG = """[bold]Example[/bold]

  gpusize report runs/20261120T210312Z-7f3a9c --users 250 --slo 'p95 runtime <= 6s' --out report/"""


def command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or a folder of runs.")],
    out: Annotated[Path | None, typer.Option(help="Where to write; the (first) run's folder by default.")] = None,
    users: Annotated[
        float | None, typer.Option(help="Requests in flight to size for; the run's own by default.")
    ] = None,
    slo: Annotated[list[str] | None, typer.Option(help="An SLO; repeatable; the run's own by default.")] = None,
    plots: Annotated[bool, typer.Option(help="Draw the figures.")] = True,
    _debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Write summary, estimate, plots and report.html of earlier runs. No load is sent."""
    from gpusize.result import open_run

    result = open_run(runs).asking(users, slo or None)
    typer.echo(result.report(out, plots=plots))
