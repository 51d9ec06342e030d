"""``gpusize cluster submit``: workloads into a cluster, in rounds or at a rate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusize.cli import cluster_workloads as workloads
from gpusize.cli.cluster_config import Config
from gpusize.cli.cluster_options import Context, Kubeconfig, Namespace, Out, Project, WorkloadType
from gpusize.cli.command import Debug, Json, long_command

if TYPE_CHECKING:
    import typer

    from gpusize.cluster.submit.options import SubmitOptions
    from gpusize.cluster.submit.submit import Submitted

__all__ = ["add"]

EPILOG = """Examples:

  gpusize cluster submit -t training -n 2000 -p 5 --delay 1 -o out1

  gpusize cluster submit -t job -n 5000 --rate 20 --process constant --namespace team-a -o out2

  gpusize cluster submit -t my-workload.yaml --stages '5/s@10m, 5/s..50/s@10m' --set spec.priority=high -o out3"""

SUBMIT = long_command(
    *("workload_type", "num_workloads", "num_processes", "num_workers", "num_gpus", "delay", "rate", "stages"),
    *("project", "namespace", "pvc", "set", "output_dir", "kubeconfig", "context"),
)


def add(app: typer.Typer) -> None:
    """Add the command to those of ``gpusize cluster``."""
    app.command("submit", cls=SUBMIT, epilog=EPILOG)(submit)


def submit(
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
    dry_run: workloads.DryRun = False,
    project: Project = "project-0",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    _config: Config = None,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Submit workloads to a cluster, and write down every attempt.

    A submission that was interrupted goes on where it was when it is given again.
    """
    import sys

    from gpusize.cli.shared import note, progress_line
    from gpusize.cluster.submit.submit import submit_workloads
    from gpusize.cluster.submit.text import submitted_lines
    from gpusize.report.export import dumps

    options = workloads.submit_options(locals())
    if dry_run:
        return _print_first(options)
    with progress_line() as say:
        done = submit_workloads(options, output_dir, kubeconfig=kubeconfig, context=context, progress=say)
    if json:
        sys.stdout.write(dumps({name: value for name, value in done.facts.items() if name != "asked"}))
    else:
        for line in submitted_lines(done):
            sys.stdout.write(f"{line}\n")
    for text in done.notes:
        note(text)
    return _conclude(done)


def _print_first(options: SubmitOptions) -> int:
    import sys

    from gpusize.cli.shared import note
    from gpusize.cluster.submit.rendered import first_workload, manifest

    workload = first_workload(options)
    sys.stdout.write(manifest(workload))
    count = "" if options.num_workloads is None else f" of {options.num_workloads:,}"
    note(f"nothing was sent. This is the first workload{count}; a namespace that is not given is the context's")
    return 0


def _conclude(done: Submitted) -> int:
    """The exit code: 130 after Ctrl-C, 1 where not every workload was created; and on standard error, why."""
    from gpusize.cli.exit_code import INTERRUPTED, NO, ExitStatus
    from gpusize.cli.shared import conclude

    clean = f"gpusize cluster clean -o {done.path} deletes it"
    counts = done.facts["counts"]
    created = f"{counts['created']:,} of {counts['workloads']:,} workloads were created"
    if done.interrupted:
        why = f"interrupted: {created} in run {done.facts['run']}; the same command goes on, {clean}"
        return conclude(ExitStatus(INTERRUPTED, why))
    if done.gave_up is not None:
        return conclude(ExitStatus(NO, f"{done.gave_up}. {created}, the others were not tried"))
    return conclude(ExitStatus(0) if done.complete else ExitStatus(NO, f"{created}"))
