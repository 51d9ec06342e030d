"""``gpusize report``: makes the derived files of earlier runs again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusize.cli import question_options as question
from gpusize.cli.command import Debug, listed, option

EPILOG = """Examples:

  gpusize report runs/20261120T210312Z-7f3a9c --users 250 --slo 'p95 runtime <= 6s' --out report/

  gpusize report studies/vllm     # all combinations of a study on one page

  gpusize report runs/20261120T210312Z-7f3a9c --format md     # for a pull request"""


def command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, a folder of runs, or the folder of a study.")],
    out: Annotated[Path | None, option("Write into this folder.", "DIR", show_default="the first run's folder")] = None,
    users: question.Users = None,
    slo: question.Slos = None,
    label: question.Labels = None,
    skip_damaged: question.SkipDamaged = False,
    plots: Annotated[bool, listed("plots")] = True,
    written: Annotated[
        str, option("Write the page, or print md: Markdown, and write nothing.", "NAME", names=("--format",))
    ] = "html",
    _debug: Debug = False,
) -> None:
    """Write summary, estimate, plots and report.html of earlier runs, or the page of a study. No load is sent.

    A study is shown as a whole; with --label, --users or --slo its runs are read like any others.
    """
    from gpusize.base.errors import UsageError
    from gpusize.cli.shared import tell_damaged, tell_read
    from gpusize.options.labels import labels_of
    from gpusize.result import open_run
    from gpusize.studies.page import is_study, write_study

    if written not in ("html", "md"):
        raise UsageError(f"there is no format {written!r}", "format", "there are html, md")
    if written == "md" and out is not None:
        raise UsageError("Markdown is printed, not written", "out", "leave --out out, and send the output to a file")
    if written == "html" and len(runs) == 1 and is_study(runs[0]) and not (label or slo or users):
        typer.echo(write_study(runs[0], out, plots=plots)[-1])
        return
    result = open_run(runs, labels=labels_of(label), skip_damaged=skip_damaged).asking(users, slo or None)
    tell_read(slo)
    tell_damaged(result)
    if written == "md":
        typer.echo(result.markdown(), nl=False)
    else:
        typer.echo(result.report(out, plots=plots))
