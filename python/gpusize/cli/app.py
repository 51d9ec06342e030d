"""The application: its commands, in the order in which they are needed."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from gpusize.cli import (
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


class _Commands(TyperGroup):
    """Typer turns Ctrl-C into a bare exit code; as an Abort it reaches the caller, who says so."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise typer.Abort from error


app = typer.Typer(
    name="gpusize",
    cls=_Commands,
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
app.command("plan", epilog=plan.EPILOG)(plan.command)
app.command("report", epilog=report.EPILOG)(report.command)
app.command("sample", epilog=sample.EPILOG, context_settings={"allow_interspersed_args": False})(sample.command)
app.command("simulate", epilog=simulate.EPILOG)(simulate.command)
app.command("doctor", epilog=doctor.EPILOG)(doctor.command)
app.add_typer(pipeline.app, name="pipeline")
app.add_typer(load.app, name="load")
app.add_typer(dataset.app, name="dataset")
app.add_typer(importing.app, name="import")
app.add_typer(runs.app, name="runs")
