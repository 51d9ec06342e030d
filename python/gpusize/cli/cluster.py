"""``gpusize cluster``: how a cluster's scheduler fares with many workloads."""

from __future__ import annotations

import typer

from gpusize.cli import (
    cluster_clean,
    cluster_compare,
    cluster_fake_nodes,
    cluster_import,
    cluster_plot,
    cluster_report,
    cluster_run,
    cluster_sample,
    cluster_submit,
    cluster_sweep,
)
from gpusize.cli.command import Commands

EPILOG = """Examples:

  gpusize cluster submit -t training -n 2000 -p 5 --delay 1 -o out1

  gpusize cluster sample -t training -o out1

  gpusize cluster plot -o out1"""

app = typer.Typer(cls=Commands, help="Time a Kubernetes cluster's scheduler.", no_args_is_help=True, epilog=EPILOG)


@app.callback()
def group() -> None:
    """Submit workloads to a Kubernetes cluster, and time each phase until their pods run."""


for command in (
    cluster_run,
    cluster_submit,
    cluster_sample,
    cluster_report,
    cluster_plot,
    cluster_compare,
    cluster_import,
    cluster_clean,
    cluster_fake_nodes,
    cluster_sweep,
):
    command.add(app)
