"""``gpusize cluster import``: results of other tools as a test."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusize.cli.command import Command, Debug, option

__all__ = ["add"]

EPILOG = """Examples:

  gpusize cluster import podLatencyMeasurement-node-density.json -o kube-burner     # then: report, plot

  gpusize cluster import kwok_scale_test.json PodStartupLatency_*.json -o others"""


def command(
    files: Annotated[list[Path], typer.Argument(help="Files of kube-burner, KAI or ClusterLoader2.")],
    output_dir: Annotated[Path, option("Folder to make; it holds no test yet.", "DIR", names=("--output-dir", "-o"))],
    _debug: Debug = False,
) -> int:
    """Take over kube-burner's pod latencies, KAI's scale tests and ClusterLoader2's PerfData.

    Pods become rows, as if they had been sampled here. Where a tool keeps no rows its figures alone are kept.
    """
    from gpusize.cli.shared import note
    from gpusize.cluster.imports.files import import_files

    found = import_files(files, output_dir)
    typer.echo(f"{found.folder}: {found.pods} pods with {found.stamps} times, {found.figures} figures without rows")
    for each in found.notes:
        note(each)
    return 0


def add(app: typer.Typer) -> None:
    """Add the command to its group."""
    app.command("import", cls=Command, epilog=EPILOG)(command)
