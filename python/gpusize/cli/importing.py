"""``gpusize import``: measurements of other tools as run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Make a run folder from another tool's files.", no_args_is_help=True, rich_markup_mode="rich")


@app.callback()
def group() -> None:
    """Make a run folder from another tool's files."""


@app.command("nat")
def nat(
    file: Annotated[
        Path, typer.Argument(help="calc_runner_output.json, a job's folder, or the calculator's output folder.")
    ],
    gpus: Annotated[
        int, typer.Option(min=0, help="GPUs behind the tested model; the file does not say. 0: unknown.")
    ] = 0,
    out: Annotated[Path, typer.Option(help="The folder of runs.")] = Path("runs"),
    _debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> None:
    """Import the NeMo Agent Toolkit's sizing calculator, in its present and its older spelling."""
    from gpusize.interop.nat import import_nat

    typer.echo(import_nat(file, out, gpus))
