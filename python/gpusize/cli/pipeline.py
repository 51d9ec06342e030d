"""``gpusize pipeline``: run a pipeline of containers and say what each operator needs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gpusize.cli import pipeline_options as options
from gpusize.cli.command import Command, Commands, Debug, Json, listed, option
from gpusize.cli.pipeline_options import FORCE

EPILOG = """Examples:

  gpusize pipeline run spleen.yaml input --models-dir models --metrics-dir metrics

  gpusize pipeline run compose.yaml input --force cont --repeat 5 --verify

  gpusize pipeline show metrics

  gpusize pipeline clean"""

app = typer.Typer(
    cls=Commands,
    help="Measure what each operator of a pipeline of containers needs.",
    no_args_is_help=True,
    epilog=EPILOG,
)


@app.callback()
def group() -> None:
    """Measure what each operator of a pipeline of containers needs."""


class _Run(Command):
    """Takes ``--force`` without a word, as CPOST's command line does."""

    common = options.COMMON

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _with_force(args))


def _with_force(args: Sequence[str]) -> list[str]:
    """``--force`` alone is ``--force none``; a pipeline's file behind it is no word of it."""
    end = args.index("--") if "--" in args else len(args)
    made = []
    for place, word in enumerate(args):
        made.append(word)
        if word == "--force" and place < end:
            behind = args[place + 1] if place + 1 < len(args) else "--"
            if behind.startswith("-") or (behind not in FORCE and Path(behind).exists()):
                made.append("none")
    return made


@app.command("run", cls=_Run, epilog=EPILOG)
def run(
    definition: options.Definition,
    input_dir: options.InputDir = None,
    metrics_dir: options.MetricsDir = None,
    models_dir: options.ModelsDir = None,
    force: options.Force = "none",
    verbose: options.Verbose = False,
    policy: options.Policy = "default",
    whole_cores: options.WholeCores = False,
    cpu_limit: options.CpuLimit = False,
    repeat: options.Repeat = 1,
    verify: options.Verify = False,
    cpu_curve: options.CpuCurve = None,
    interval: options.Interval = "20ms",
    parameter: options.Parameter = None,
    user: options.User = None,
    gpus: options.Gpus = None,
    shm_size: options.ShmSize = None,
    network: options.Network = None,
    writable_inputs: options.WritableInputs = False,
    start_timeout: options.StartTimeout = "60s",
    timeout: options.Timeout = None,
    work_dir: options.WorkDir = None,
    keep: options.Keep = None,
    triton_image: options.TritonImage = None,
    triton_gpus: options.TritonGpus = None,
    triton_url: options.TritonUrl = None,
    triton_grpc: options.TritonGrpc = None,
    triton_timeout: options.TritonTimeout = "10m",
    plots: options.Plots = True,
    quiet: options.Quiet = False,
    json: options.Json = False,
    _debug: Debug = False,
) -> int:
    """Run each operator in its container, one at a time, measure it, and say what to request for it."""
    from gpusize.cli.pipeline_run import run_and_report

    given = dict(locals())
    given.pop("run_and_report", None)
    given.pop("_debug")
    return run_and_report(command=["gpusize", *sys.argv[1:]], **given)


@app.command("show", cls=Command)
def show(
    folder: Annotated[Path, typer.Argument(help="A metrics folder, or a run in it.")],
    policy: Annotated[str | None, listed("policy", show_default="the run's")] = None,
    whole_cores: Annotated[bool, listed("whole_cores")] = False,
    cpu_limit: Annotated[bool, listed("cpu_limit")] = False,
    json: Json = False,
    _debug: Debug = False,
) -> None:
    """Show a run again, perhaps by another rule."""
    from gpusize.report.containers.pipeline_show import show_run

    sys.stdout.write(show_run(folder, policy, whole_cores=whole_cores, cpu_limit=cpu_limit, json=json))


@app.command("clean", cls=Command)
def clean(
    everything: Annotated[
        bool, option("Also remove those of runs that still seem to run, and of other hosts.", names=("--all",))
    ] = False,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Remove containers, networks, cgroups and folders of runs that were killed."""
    from dataclasses import asdict

    from gpusize.cli.shared import note
    from gpusize.containers.pipeline import clean as clean_up
    from gpusize.report.export import dumps
    from gpusize.report.text import clean as shown_text

    cleaned = clean_up(everything=everything)
    document: dict[str, Any] = asdict(cleaned)
    if json:
        sys.stdout.write(dumps(document))
    else:
        for what in cleaned.removed or ["nothing was left"]:
            typer.echo(what if what == "nothing was left" else f"removed {shown_text(what)}")
        for what in cleaned.running:
            note(f"run {what} goes on, or is of another host: left alone (--all removes it)")
    for what in cleaned.left:
        note(f"still there: {shown_text(what)}")
    return 1 if cleaned.left else 0
