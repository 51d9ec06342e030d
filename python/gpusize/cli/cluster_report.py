"""``gpusize cluster report``: the phases of a test in figures, and whether they keep thresholds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from gpusize.cli.cluster_chosen import Head, SkipErrors, Slo, Tail, Tested
from gpusize.cli.cluster_config import Config
from gpusize.cli.command import Command, Debug, Json, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    import typer

    from gpusize.cluster.phases.thresholds import Threshold

__all__ = ["add"]

EPILOG = """Examples:

  gpusize cluster report -o out1

  gpusize cluster report -o out1 --slo 'p99 scheduled <= 5s' --slo 'share ready >= 99%' --junit slo.xml

  gpusize cluster report -o out1 --slo kubernetes --json     # the pod startup SLO of Kubernetes"""


def command(
    output_dir: Tested = Path("logs"),
    slo: Slo = None,
    junit: Annotated[Path | None, option("Write the results of --slo as JUnit XML.", "FILE")] = None,
    skip_errors: SkipErrors = True,
    head: Head = None,
    tail: Tail = None,
    _config: Config = None,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Say how long each phase took, with what never ended, and whether thresholds are kept."""
    import sys

    from gpusize.base.errors import UsageError
    from gpusize.base.files import write_atomic
    from gpusize.cli.exit_code import ExitStatus
    from gpusize.cli.shared import conclude
    from gpusize.cluster.opened import has_rows, imported_figures, open_test
    from gpusize.cluster.phases.thresholds import judge, thresholds
    from gpusize.cluster.report.documents import document, junit_xml
    from gpusize.cluster.report.show import print_figures, print_test
    from gpusize.report.export import dumps
    from gpusize.report.summary.terminal import make_console

    wanted = thresholds(slo or ())
    if junit is not None and not wanted:
        raise UsageError("there are no thresholds to write", "--junit", "give --slo")
    figures = imported_figures(output_dir)
    if figures is not None and not has_rows(output_dir):
        return _figures_alone(figures, wanted, json=json)
    timed = open_test(output_dir, skip_errors=skip_errors).part(head, tail)
    summary = timed.summary(also=[each.phase for each in wanted])
    judged = judge(timed, wanted)
    if junit is not None:
        write_atomic(junit, junit_xml(judged).encode())
    if json:
        sys.stdout.write(dumps(document(timed, summary, judged)))
    else:
        print_test(timed, summary, make_console(), judged)
        if figures is not None:
            print_figures(figures, make_console())
    missed = [each for each in judged if not each.met]
    if missed:
        return conclude(ExitStatus(1, f"{len(missed)} of {len(judged)} thresholds are not met"))
    return 0


def _figures_alone(figures: pl.DataFrame, wanted: Sequence[Threshold], *, json: bool) -> int:
    """Tell of figures that another tool kept without rows."""
    import sys

    from gpusize.base.errors import UsageError
    from gpusize.cluster.report.show import print_figures
    from gpusize.report.export import dumps
    from gpusize.report.summary.terminal import make_console

    if wanted:
        raise UsageError("figures without rows cannot be judged", "--slo", "import a file that has rows")
    if json:
        sys.stdout.write(dumps({"schema": 1, "figures": figures.to_dicts()}))
    else:
        print_figures(figures, make_console())
    return 0


def add(app: typer.Typer) -> None:
    """Add the command to its group."""
    app.command("report", cls=Command, epilog=EPILOG)(command)
