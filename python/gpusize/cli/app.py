"""The application: its commands, in the order in which they are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Final

import typer

from gpusize.cli.command import Command, Commands, option

__all__ = ["application"]


def _print_version(asked: bool) -> None:
    if asked:
        from gpusize import __version__

        typer.echo(f"gpusize {__version__}")
        raise typer.Exit


def _common(
    _version: Annotated[
        bool, option("Print the version and stop.", names=("--version",), is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Options of the program itself."""


def application(word: str = "") -> typer.Typer:
    """The application; where ``word`` is the name of a command, with that one alone.

    Importing all commands and reading their signatures takes a tenth of the time of a short command.
    """
    app = typer.Typer(
        name="gpusize",
        cls=Commands,
        help="Measures how many GPUs a model, an agent or a pipeline needs, and says how sure it is.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="gpusize run without a target sizes a small simulated cluster, to show how it works.",
    )
    app.callback()(_common)
    for add in [_ADD[word]] if word in _ADD else _ADD.values():
        add(app)
    return app


def _run(app: typer.Typer) -> None:
    from gpusize.cli import run

    app.command("run", cls=run.COMMAND, epilog=run.EPILOG)(run.command)


def _study(app: typer.Typer) -> None:
    from gpusize.cli import study

    app.command("study", cls=Command, epilog=study.EPILOG)(study.command)


def _estimate(app: typer.Typer) -> None:
    from gpusize.cli import estimate

    app.command("estimate", cls=Command, epilog=estimate.EPILOG)(estimate.command)


def _prove(app: typer.Typer) -> None:
    from gpusize.cli import prove

    app.command("prove", cls=prove.COMMAND, epilog=prove.EPILOG)(prove.command)


def _plan(app: typer.Typer) -> None:
    from gpusize.cli import plan

    app.command("plan", cls=plan.COMMAND, epilog=plan.EPILOG)(plan.command)


def _compare(app: typer.Typer) -> None:
    from gpusize.cli import compare

    app.command("compare", cls=Command, epilog=compare.EPILOG)(compare.command)


def _duet(app: typer.Typer) -> None:
    from gpusize.cli import duet

    app.command("duet", cls=duet.COMMAND, epilog=duet.EPILOG)(duet.command)


def _report(app: typer.Typer) -> None:
    from gpusize.cli import report

    app.command("report", cls=Command, epilog=report.EPILOG)(report.command)


def _export(app: typer.Typer) -> None:
    from gpusize.cli import export

    app.command("export", cls=Command, epilog=export.EPILOG)(export.command)


def _sample(app: typer.Typer) -> None:
    from gpusize.cli import sample

    settings = {"allow_interspersed_args": False}
    app.command("sample", cls=Command, epilog=sample.EPILOG, context_settings=settings)(sample.command)


def _simulate(app: typer.Typer) -> None:
    from gpusize.cli import simulate

    app.command("simulate", cls=Command, epilog=simulate.EPILOG)(simulate.command)


def _doctor(app: typer.Typer) -> None:
    from gpusize.cli import doctor

    app.command("doctor", cls=Command, epilog=doctor.EPILOG)(doctor.command)


def _agent(app: typer.Typer) -> None:
    from gpusize.cli import agent

    app.command("agent", cls=Command, epilog=agent.EPILOG)(agent.command)


def _autoscale(app: typer.Typer) -> None:
    from gpusize.cli import autoscale

    app.add_typer(autoscale.app, name="autoscale")


def _cluster(app: typer.Typer) -> None:
    from gpusize.cli import cluster

    app.add_typer(cluster.app, name="cluster")


def _pipeline(app: typer.Typer) -> None:
    from gpusize.cli import pipeline

    app.add_typer(pipeline.app, name="pipeline")


def _load(app: typer.Typer) -> None:
    from gpusize.cli import load

    app.add_typer(load.app, name="load")


def _dataset(app: typer.Typer) -> None:
    from gpusize.cli import dataset

    app.add_typer(dataset.app, name="dataset")


def _import(app: typer.Typer) -> None:
    from gpusize.cli import importing

    app.add_typer(importing.app, name="import")


def _runs(app: typer.Typer) -> None:
    from gpusize.cli import runs

    app.add_typer(runs.app, name="runs")


_ADD: Final[Mapping[str, Callable[[typer.Typer], None]]] = MappingProxyType(
    {
        "run": _run,
        "study": _study,
        "estimate": _estimate,
        "prove": _prove,
        "plan": _plan,
        "autoscale": _autoscale,
        "cluster": _cluster,
        "compare": _compare,
        "duet": _duet,
        "report": _report,
        "export": _export,
        "sample": _sample,
        "simulate": _simulate,
        "doctor": _doctor,
        "agent": _agent,
        "pipeline": _pipeline,
        "load": _load,
        "dataset": _dataset,
        "import": _import,
        "runs": _runs,
    }
)
"""What adds each command, by its name."""
