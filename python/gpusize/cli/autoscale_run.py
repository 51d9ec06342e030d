"""``gpusize autoscale run``: an experiment on an autoscaler, from its load to its judgement."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusize.cli.command import Command, Debug, Json, listed, option

if TYPE_CHECKING:
    from gpusize.studies.experiment import Experiment

__all__ = ["add"]

EPILOG = """Examples:

  gpusize autoscale run experiment.yaml --dry-run

  gpusize autoscale run experiment.yaml

docs/how-to/autoscale-experiment.md says what stands in the file."""
INTERRUPTED = 130


def add(app: typer.Typer) -> None:
    """Add the command to those of ``gpusize autoscale``."""

    @app.command("run", cls=Command, epilog=EPILOG)
    def run(
        file: Annotated[Path, typer.Argument(help="The experiment, as YAML, TOML or JSON.")],
        out: Annotated[
            Path | None,
            option("Make the run folder in this one.", "DIR", show_default="as the file says, else runs"),
        ] = None,
        dry_run: Annotated[bool, option("Print what would be done, and stop.", names=("--dry-run",))] = False,
        plots: Annotated[bool, listed("plots")] = True,
        quiet: Annotated[bool, listed("quiet")] = False,
        json: Json = False,
        _debug: Debug = False,
    ) -> int:
        """Send a load to autoscaled replicas, pull the series of its time, and judge what the autoscaler did.

        The experiment names the options of gpusize run, the Prometheus server among them, and the series to keep.
        """
        from gpusize.studies.experiment import read_experiment

        experiment = read_experiment(file)
        if dry_run:
            typer.echo("\n".join(_lines(experiment)))
            return 0
        return _run(experiment, out, plots=plots, quiet=quiet, json=json)


def _run(experiment: Experiment, out: Path | None, *, plots: bool, quiet: bool, json: bool) -> int:
    import sys

    from gpusize.api.experiment import run_experiment
    from gpusize.cli.exit_code import ExitStatus
    from gpusize.cli.shared import conclude, note, print_result
    from gpusize.report.export import dumps
    from gpusize.report.live.live import LiveProgress
    from gpusize.report.plans.judged import conclusion, print_judgement
    from gpusize.report.pulled import missing_lines
    from gpusize.report.summary.terminal import make_console

    with LiveProgress(quiet=quiet) as live:
        done = run_experiment(
            experiment,
            out=out,
            plots=plots,
            command=["gpusize", *sys.argv[1:]],
            progress=live.event,
            say=lambda text: live.message(f"gpusize: {text}"),
        )
    for text in (*done.problems, *(() if done.pulled is None else missing_lines(done.pulled.facts))):
        note(text)
    if json:
        found = None if done.judgement is None else done.judgement.to_json()
        sys.stdout.write(dumps({"run": str(done.result.path), "problems": list(done.problems), "judgement": found}))
    elif done.judgement is None:
        print_result(done.result, [], [done.result.path])
    else:
        print_judgement(done.judgement, make_console(), done.written)
    if done.result.cancelled or done.interrupted:
        return INTERRUPTED
    if done.judgement is not None and not done.judgement.keeps:
        return conclude(ExitStatus(1, conclusion(done.judgement)))
    return 0 if done.complete else conclude(ExitStatus(3, f"not all of it is there; {done.result.path} has what is"))


def _lines(experiment: Experiment) -> list[str]:
    """What would be done."""
    from gpusize.base.text import shown
    from gpusize.base.units import format_duration
    from gpusize.observe.series.presets import definitions
    from gpusize.options.load import load_from_options

    load = load_from_options(experiment.run)
    lines = [f"run       {name}={shown(value, 80)}" for name, value in experiment.run.items()]
    lines += [f"stage     {stage}" for stage in load.stages]
    lines += [f"series    {name}" for name in definitions(experiment.presets, experiment.series)]
    lines += [f"margin    {format_duration(experiment.margin_s)} before and after the load"]
    lines += [f"needed    {path}" for path in experiment.needed]
    return lines
