"""``gpusize report``: makes the derived files of earlier runs again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EPILOG = """Examples:

  gpusize report runs/20261120T210312Z-7f3a9c --users 250 --slo 'p95 runtime <= 6s' --out report/

  gpusize report studies/vllm     # all combinations of a study on one page"""


def command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, a folder of runs, or the folder of a study.")],
    out: Annotated[
        Path | None, typer.Option(help="Write into this folder.", metavar="DIR", show_default="the first run's folder")
    ] = None,
    users: Annotated[
        float | None,
        typer.Option(help="Size for this many requests in flight.", metavar="N", show_default="the run's own"),
    ] = None,
    slo: Annotated[
        list[str] | None, typer.Option(help="Meet this SLO. All must hold.", show_default="the run's own")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="Read only runs with this label.", metavar="KEY=VALUE")
    ] = None,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Leave out levels whose files are damaged.")
    ] = False,
    plots: Annotated[bool, typer.Option(help="Draw the figures.")] = True,
    _debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Write summary, estimate, plots and report.html of earlier runs, or the page of a study. No load is sent.

    A study is shown as a whole; with --label, --users or --slo its runs are taken like others.
    """
    from gpusize.cli.shared import tell_damaged, tell_read
    from gpusize.options.run_spec import labels_of
    from gpusize.result import open_run
    from gpusize.studies.page import is_study, write_study

    if len(runs) == 1 and is_study(runs[0]) and not (label or slo or users):
        typer.echo(write_study(runs[0], out, plots=plots)[-1])
        return
    result = open_run(runs, labels=labels_of(label), skip_damaged=skip_damaged).asking(users, slo or None)
    tell_read(slo)
    tell_damaged(result)
    typer.echo(result.report(out, plots=plots))
