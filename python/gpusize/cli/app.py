"""The application: its commands, in the order in which they are needed."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusize.cli import (
    compare,
    dataset,
    doctor,
    estimate,
    importing,
    load,
    pipeline,
    plan,
    report,
    run,
    runs,
    sample,
    simulate,
    study,
)
from gpusize.cli.command import Command, Commands

app = typer.Typer(
    name="gpusize",
    cls=Commands,
    help="Measures how many GPUs a model, an agent or a pipeline needs, and says how sure it is.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="gpusize run without a target sizes a small simulated cluster, to show how it works.",
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


app.command("run", cls=run.COMMAND, epilog=run.EPILOG)(run.command)
app.command("study", cls=Command, epilog=study.EPILOG)(study.command)
app.command("estimate", cls=Command, epilog=estimate.EPILOG)(estimate.command)
app.command("plan", cls=plan.COMMAND, epilog=plan.EPILOG)(plan.command)
app.command("compare", cls=Command, epilog=compare.EPILOG)(compare.command)
app.command("report", cls=Command, epilog=report.EPILOG)(report.command)
app.command("sample", cls=Command, epilog=sample.EPILOG, context_settings={"allow_interspersed_args": False})(
    sample.command
)
app.command("simulate", cls=Command, epilog=simulate.EPILOG)(simulate.command)
app.command("doctor", cls=Command, epilog=doctor.EPILOG)(doctor.command)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(load.app, name="load")
app.add_typer(dataset.app, name="dataset")
app.add_typer(importing.app, name="import")
app.add_typer(runs.app, name="runs")
