"""``gpusize cluster sweep``: how much a scheduler can take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpusize.cli import cluster_workloads as workloads
from gpusize.cli.cluster_config import Config
from gpusize.cli.cluster_options import Context, Kubeconfig, Namespace, Out, Project, WorkloadType
from gpusize.cli.command import Debug, Json, long_command, option

if TYPE_CHECKING:
    import typer

__all__ = ["add"]

EPILOG = """Examples:

  gpusize cluster sweep -t pod --nodes 100,1000 --rates 10,20,50,100 -o sweep1

  gpusize cluster sweep -t kai-podgroup --nodes 500 --rates 1,2,5 --gangs 1,8,32 --slo 'p95 scheduled <= 10s'
    -o sweep2"""

COMMAND = long_command(
    *("workload_type", "nodes", "rates", "gangs", "gpus_per_node", "submit_for", "settle", "run_for", "slo"),
    *("num_gpus", "project", "namespace", "set", "output_dir", "kubeconfig", "context"),
)
FAKES, TESTS = "Nodes", "Tests"
USUAL_SLO = "p99 scheduled <= 5s"


def add(app: typer.Typer) -> None:
    """Add the command to those of ``gpusize cluster``."""
    app.command("sweep", cls=COMMAND, epilog=EPILOG)(command)


def command(
    nodes: Annotated[str, option("Numbers of fake nodes, as 100,1000.", "LIST", FAKES)],
    rates: Annotated[str, option("Workloads per second, as 10,20,50.", "LIST", TESTS)],
    workload_type: WorkloadType = "pod",
    output_dir: Out = Path("logs"),
    gangs: Annotated[str | None, option("Workers of each workload, as 1,8,32.", "LIST", TESTS)] = None,
    num_gpus: workloads.NumGpus = 1,
    gpus_per_node: Annotated[int, option("GPUs of each fake node.", "N", FAKES, min=0, max=1024)] = 8,
    start_after: workloads.StartAfter = "0s",
    run_for: workloads.RunFor = None,
    submit_for: Annotated[str, option("Submit for this long in each test.", "TIME", TESTS)] = "30s",
    settle: Annotated[str, option("Wait this long after the last was submitted.", "TIME", TESTS)] = "30s",
    slo: Annotated[
        list[str] | None,
        option("What a test has to keep, as for cluster report.", "TEXT", TESTS, show_default=USUAL_SLO),
    ] = None,
    every: Annotated[
        bool, option("Go on beyond the first rate that does not keep it.", None, TESTS, names=("--every",))
    ] = False,
    queue: workloads.Queue = "default",
    set_: workloads.Set = None,
    process: workloads.Process = "poisson",
    seed: workloads.Seed = 1,
    max_in_flight: workloads.MaxInFlight = 256,
    allow_other_workloads: workloads.AllowOthers = False,
    project: Project = "project-0",
    namespace: Namespace = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    _config: Config = None,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Find the highest rate that a scheduler keeps up with, for each number of fake nodes and each size of gang.

    Every test makes its own fake nodes, submits at one rate, waits until all is scheduled, and takes everything away
    again. Rates grow until the threshold is not kept; --slo is 'p99 scheduled <= 5s' where none is given.
    """
    import sys

    from gpusize.base.units import as_duration_s, parse_concurrencies, parse_rates
    from gpusize.cli.exit_code import INTERRUPTED, NO, ExitStatus
    from gpusize.cli.shared import conclude, progress_line
    from gpusize.cluster.figures.sweep import save_sweep
    from gpusize.cluster.phases.thresholds import thresholds
    from gpusize.cluster.report.swept import print_swept
    from gpusize.cluster.submit.options import SubmitOptions
    from gpusize.cluster.sweep import SweepOptions, sweep
    from gpusize.report.export import dumps
    from gpusize.report.summary.terminal import make_console

    submit = SubmitOptions(
        workload_type=workload_type,
        num_workloads=1,
        num_gpus=num_gpus,
        project=project,
        namespace=namespace,
        queue=queue,
        overrides=tuple(set_ or ()),
        process=process,
        seed=seed,
        max_in_flight=max_in_flight,
    )
    options = SweepOptions(
        submit,
        parse_concurrencies(nodes),
        parse_rates(rates),
        None if gangs is None else parse_concurrencies(gangs),
        gpus_per_node,
        as_duration_s(submit_for, "--submit-for"),
        as_duration_s(settle, "--settle"),
        start_after,
        run_for,
        every,
    )
    with progress_line() as say:
        found = sweep(
            options,
            output_dir,
            thresholds(slo or [USUAL_SLO]),
            kubeconfig=kubeconfig,
            context=context,
            shared=allow_other_workloads,
            progress=say,
        )
    if json:
        knees = [{"nodes": k.nodes, "workers": k.workers, "keeps": k.keeps, "breaks": k.breaks} for k in found.knees]
        sys.stdout.write(dumps({"schema": 1, "tests": found.tests.to_dicts(), "knees": knees}))
    else:
        written = save_sweep(found, output_dir) if found.tests.height else []
        print_swept(found, slo or [USUAL_SLO], make_console(), written)
    if found.interrupted:
        return conclude(ExitStatus(INTERRUPTED, f"interrupted; what was measured is in {output_dir}"))
    none = [knee for knee in found.knees if knee.keeps is None]
    return conclude(ExitStatus(NO, "the lowest rate did not keep it") if none else ExitStatus(0))
