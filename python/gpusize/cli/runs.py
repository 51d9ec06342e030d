"""``gpusize runs``: looks after run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusize.cli.command import Command, Commands, Debug

app = typer.Typer(cls=Commands, help="Look after run folders.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Look after run folders."""


@app.command("verify", cls=Command)
def verify(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of runs.")],
    _debug: Debug = False,
) -> int:
    """Check that every file of a run is as it was written: parts, rows, checksums. Exit 3 when one is not."""
    from gpusize.analysis.read_levels import verify_run
    from gpusize.base.errors import StoreError
    from gpusize.records.store import find_runs

    damaged = False
    for run in dict.fromkeys(found for each in runs for found in find_runs(each)):
        try:
            levels = verify_run(run)
        except StoreError as error:
            _say(f"damaged: {error}")
            damaged = True
            continue
        for level in levels:
            damaged = damaged or level.problem is not None
            whole = "whole" if level.checksums else "whole as far as can be told: written without checksums"
            _say(f"{run}/levels/{level.name}  {whole if level.problem is None else f'damaged: {level.problem}'}")
        if not levels:
            _say(f"{run}  no level was finished")
    return 3 if damaged else 0


def _say(text: str) -> None:
    from gpusize.base.text import shown
    from gpusize.cli.shared import MOST_CHARS

    typer.echo(shown(text, MOST_CHARS))
