"""``gpusize cluster plot``: the phases of a test as pictures and tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusize.cli.cluster_chosen import Head, Plot, SkipErrors, Tail, Tested
from gpusize.cli.cluster_config import Config
from gpusize.cli.command import Command, Debug

if TYPE_CHECKING:
    import typer

__all__ = ["add"]

EPILOG = """Examples:

  gpusize cluster plot -o out1

  gpusize cluster plot --skip-errors --plot detailed -o out2

  gpusize cluster plot -o logs --head 500 --tail 100     # the last 100 of the first 500"""


def command(
    output_dir: Tested = Path("logs"),
    plot: Plot = "general",
    skip_errors: SkipErrors = True,
    head: Head = None,
    tail: Tail = None,
    _config: Config = None,
    _debug: Debug = False,
) -> int:
    """Draw the phases of a test, and write its tables, into its folder.

    general.png or detailed.png has a row for each phase: over the submissions, and as a histogram. overview.png has
    distributions, percentiles over time, the life of the workloads, throughput and GPUs. workloads.parquet,
    phases.parquet, pods.parquet and times.csv have every workload.
    """
    from gpusize.base.errors import UsageError
    from gpusize.cluster.figures.save import LAYOUTS, save_figures
    from gpusize.cluster.opened import open_test, write_tables
    from gpusize.cluster.report.show import print_test
    from gpusize.report.summary.terminal import make_console

    if plot not in LAYOUTS:
        raise UsageError(f"there is no plot {plot}", "--plot", f"name one of {', '.join(LAYOUTS)}")
    whole = open_test(output_dir, skip_errors=skip_errors)
    timed = whole.part(head, tail)
    written = [*write_tables(output_dir, whole), *save_figures(timed, output_dir, plot)]
    print_test(timed, timed.summary(), make_console(), written=written)
    return 0


def add(app: typer.Typer) -> None:
    """Add the command to its group."""
    app.command("plot", cls=Command, epilog=EPILOG)(command)
