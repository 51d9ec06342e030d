"""``gpusize autoscale report``: what an autoscaler did in a run, judged; sends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusize.cli import plan_over_time as over
from gpusize.cli import question_options as question
from gpusize.cli.command import Debug, Json, listed, long_command, option

EPILOG = """Examples:

  gpusize autoscale report runs/20261120T210312Z-7f3a9c --slo 'p95 ttft <= 2s' --gpus-per-replica 2

  gpusize autoscale report runs/20261120T210312Z-7f3a9c --pulled series/ --needed runs/one-replica

  gpusize compare runs/static runs/scaled --figure gpu-hours     # of runs that were reported on"""

COMMAND = long_command("run", "pulled", "slo", "needed", "gpus_per_replica", "gpu_hour_price", "json")


def command(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    pulled: Annotated[
        Path | None,
        option("Read the pulled series from this folder.", "DIR", show_default="series in the run folder"),
    ] = None,
    slo: question.Slos = None,
    needed: Annotated[
        list[Path] | None,
        option("Take the replicas that were needed from runs on one replica like these.", "RUNS"),
    ] = None,
    window: over.Window = None,
    gpus_per_replica: question.GpusPerReplica = 1,
    gpu_hour_price: Annotated[
        str | None, option("Price of a GPU for an hour: 2.5 or '2.5 EUR'.", "PRICE", question.QUESTION)
    ] = None,
    router: question.Router = "least_loaded",
    allow: question.Allow = None,
    skip_damaged: question.SkipDamaged = False,
    out: Annotated[
        Path | None, option("Write autoscale.json and the figure here.", "DIR", show_default="the run folder")
    ] = None,
    plots: Annotated[bool, listed("plots")] = True,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Say whether an autoscaled run was served, how soon replicas followed its load, and what was paid for them.

    It reads the records of the run, and the series that were pulled from Prometheus for it. No load is sent.
    """
    import sys

    from gpusize.api.judged_autoscaler import judge_autoscaler
    from gpusize.base.units import as_duration_s
    from gpusize.cli.exit_code import ExitStatus
    from gpusize.cli.shared import conclude, progress_line, tell_damaged, tell_read
    from gpusize.report.export import dumps
    from gpusize.report.plans.judged import conclusion, print_judgement, write_judgement
    from gpusize.report.summary.terminal import make_console
    from gpusize.result import open_run

    result = open_run(run, skip_damaged=skip_damaged)
    tell_read(slo)
    tell_damaged(result)
    with progress_line() as say:
        found = judge_autoscaler(
            result,
            pulled,
            slo or None,
            needed=open_run(needed, skip_damaged=skip_damaged) if needed else None,
            gpus_per_replica=gpus_per_replica,
            gpu_hour_price=gpu_hour_price,
            window_s=60.0 if window is None else as_duration_s(window, "window"),
            router=router,
            allow=allow or (),
            progress=say,
        )
    written = write_judgement(found, result.path if out is None else out, plots=plots)
    if json:
        sys.stdout.write(dumps(found.to_json()))
    else:
        print_judgement(found, make_console(), written)
    return 0 if found.keeps else conclude(ExitStatus(1, conclusion(found)))
