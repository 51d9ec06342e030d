"""The application: its commands, in the order in which they are needed."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusize.cli import dataset, estimate, importing, report, run, simulate, study

app = typer.Typer(
    name="gpusize",
    help="Measures how many GPUs a model, an agent or a pipeline needs, and says how sure it is.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="[dim]gpusize run[/dim] without a target sizes a small simulated cluster, to see how it works.",
)


def _print_version(asked: bool) -> None:
    if asked:
        from gpusize import __version__

        typer.echo(f"gpusize {__version__}")
        raise typer.Exit


@app.callback()
def common(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and stop.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Options of the program itself."""


app.command("run", epilog=run.EPILOG)(run.command)
app.command("study", epilog=study.EPILOG)(study.command)
app.command("estimate", epilog=estimate.EPILOG)(estimate.command)
app.command("report", epilog=report.EPILOG)(report.command)
app.command("simulate", epilog=simulate.EPILOG)(simulate.command)
app.add_typer(dataset.app, name="dataset")
app.add_typer(importing.app, name="import")
