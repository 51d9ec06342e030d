"""``gpusize cluster run``: a whole test of a cluster's scheduler, from the first request to the pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpusize.cli import cluster_workloads as workloads
from gpusize.cli.cluster_chosen import Plot, Slo
from gpusize.cli.cluster_config import Config
from gpusize.cli.cluster_options import Context, Kubeconfig, Namespace, Out, Project, WorkloadType
from gpusize.cli.command import Debug, Json, long_command, option

if TYPE_CHECKING:
    import typer

__all__ = ["add"]

EPILOG = """Examples:

  gpusize cluster run -t job -n 500 --rate 20 -g 2 --slo 'p99 scheduled <= 5s' -o out1

  gpusize cluster run -t distributed -n 1000 --num-workers 7 -p 1 --delay 5 --plot detailed -o out2

  gpusize cluster run -t my-job.yaml -n 200 --until completed --clean -o out3"""

COMMAND = long_command(
    *("workload_type", "num_workloads", "num_processes", "num_workers", "num_gpus", "delay", "rate", "stages"),
    *(
        "until",
        "within",
        "slo",
        "plot",
        "clean",
        "project",
        "namespace",
        "set",
        "output_dir",
        "kubeconfig",
        "context",
        "config",
    ),
)


def add(app: typer.Typer) -> None:
    """Add the command to those of ``gpusize cluster``."""
    app.command("run", cls=COMMAND, epilog=EPILOG)(command)


def command(
    workload_type: WorkloadType = "training",
    num_workloads: workloads.NumWorkloads = None,
    output_dir: Out = Path("logs"),
    num_workers: workloads.NumWorkers = 1,
    num_gpus: workloads.NumGpus = 1,
    pvc: workloads.Pvc = False,
    queue: workloads.Queue = "default",
    set_: workloads.Set = None,
    prefix: workloads.Prefix = "j",
    num_processes: workloads.NumProcesses = 8,
    delay: workloads.Delay = "0",
    rate: workloads.Rate = None,
    stages: workloads.Stages = None,
    process: workloads.Process = "poisson",
    seed: workloads.Seed = 1,
    max_in_flight: workloads.MaxInFlight = 256,
    retries: workloads.Retries = 5,
    until: Annotated[str, option("Go on until all workloads are that far: ready or completed.", "WHAT")] = "ready",
    within: Annotated[str, option("Wait no longer for that after the last was submitted.", "TIME")] = "10m",
    slo: Slo = None,
    plot: Plot = "general",
    clean: Annotated[bool, option("Delete the workloads at the end.", names=("--clean",))] = False,
    project: Project = "project-0",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    _config: Config = None,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Submit workloads, stamp every moment until all of them run, and report and draw how long each phase took.

    It is submit, sample and plot in one. The watches are open before the first request. Ctrl-C ends it in order, and
    what was seen is reported.
    """
    import sys

    from gpusize.base.errors import UsageError
    from gpusize.base.units import as_duration_s
    from gpusize.cli.exit_code import INTERRUPTED, NO, ExitStatus
    from gpusize.cli.shared import conclude, note, progress_line
    from gpusize.cluster.conduct import conduct
    from gpusize.cluster.figures.save import LAYOUTS, save_figures
    from gpusize.cluster.opened import open_test, write_tables
    from gpusize.cluster.phases.thresholds import judge, thresholds
    from gpusize.cluster.report.documents import document
    from gpusize.cluster.report.show import print_test
    from gpusize.cluster.submit.clean import clean_run
    from gpusize.cluster.submit.text import cleaned_lines
    from gpusize.report.export import dumps
    from gpusize.report.summary.terminal import make_console

    options, wanted = workloads.submit_options(locals()), thresholds(slo or ())
    if until not in ("ready", "completed"):
        raise UsageError(f"there is no {until}", "--until", "use ready or completed")
    if plot not in LAYOUTS:
        raise UsageError(f"there is no plot {plot}", "--plot", f"name one of {', '.join(LAYOUTS)}")
    wait_s = as_duration_s(within, "--within")
    with progress_line() as say:
        done = conduct(
            options,
            output_dir,
            until=until,  # type: ignore[arg-type]
            wait_s=wait_s,
            kubeconfig=kubeconfig,
            context=context,
            progress=say,
        )
        if done.submitted.interrupted and not done.submitted.facts["counts"]["created"]:
            return conclude(ExitStatus(INTERRUPTED, "interrupted before a workload was created"))
        say("reporting")
        timed = open_test(output_dir)
        written = [*write_tables(output_dir, timed), *save_figures(timed, output_dir, plot)]
        summary, judged = timed.summary(also=[each.phase for each in wanted]), judge(timed, wanted)
    if json:
        sys.stdout.write(dumps(document(timed, summary, judged)))
    else:
        print_test(timed, summary, make_console(), judged, written=written)
    for text in done.submitted.notes:
        note(text)
    hint = f"gpusize cluster clean -o {output_dir} deletes the workloads"
    if clean:
        with progress_line() as say:
            gone = clean_run(output_dir, kubeconfig=kubeconfig, context=context, progress=say)
        for line in cleaned_lines(gone):
            note(line)
    if done.submitted.interrupted:
        return conclude(ExitStatus(INTERRUPTED, f"interrupted; the same command goes on, {hint}"))
    if done.submitted.gave_up is not None:
        return conclude(ExitStatus(NO, done.submitted.gave_up))
    missed = sum(not each.met for each in judged)
    if missed:
        return conclude(ExitStatus(NO, f"{missed} of {len(judged)} thresholds are not met"))
    if not done.reached:
        return conclude(ExitStatus(NO, done.why))
    return conclude(ExitStatus(0) if done.submitted.complete else ExitStatus(NO, "not every workload was created"))
