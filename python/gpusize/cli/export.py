"""``gpusize export``: runs in the formats of other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusize.cli import question_options as question
from gpusize.cli.command import Debug, option

EPILOG = """Examples:

  gpusize export runs/20261120T210312Z-7f3a9c --format perf_analyzer --out sweep.csv

  gpusize export runs/20261120T210312Z-7f3a9c --format benchmark_report --out reports/

  gpusize export runs/ --format otava --out trend.csv     # one row for each run"""


def command(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of runs.")],
    written: Annotated[
        str,
        option("csv, json, parquet, perf_analyzer, nat, otava or benchmark_report.", "NAME", names=("--format",)),
    ],
    out: Annotated[
        Path | None, option("Write this file; or into this folder.", "PATH", show_default="print it")
    ] = None,
    what: Annotated[str, option("For csv, json and parquet: summary, records or samples.", "TABLE")] = "summary",
    users: question.Users = None,
    slo: question.Slos = None,
    label: question.Labels = None,
    skip_damaged: question.SkipDamaged = False,
    _debug: Debug = False,
) -> None:
    """Write runs in the formats of other tools. No load is sent."""
    from gpusize.base.errors import UsageError
    from gpusize.cli.shared import note, tell_damaged, tell_read
    from gpusize.options.labels import labels_of
    from gpusize.report.exchange.formats import rendered
    from gpusize.result import open_run

    result = open_run(runs, labels=labels_of(label), skip_damaged=skip_damaged).asking(users, slo or None)
    tell_read(slo)
    tell_damaged(result)
    if out is not None:
        for file in result.export(written, out, what=what):
            typer.echo(file)
        for each in result.notes:
            note(each)
        return
    made = rendered(result, written, what)
    if written == "parquet" or len(made.files) > 1:
        raise UsageError(f"{written} cannot be printed here", "out", "say where it goes: --out PATH")
    for content in made.files.values():
        typer.echo(content.decode(), nl=False)
    for each in made.notes:
        note(each)
