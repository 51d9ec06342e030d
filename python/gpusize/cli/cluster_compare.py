"""``gpusize cluster compare``: whether phases take longer in one test than in another."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusize.cli.cluster_chosen import SkipErrors
from gpusize.cli.command import Command, Debug, Json, option
from gpusize.cli.comparing import Margin

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["add"]

EPILOG = """Examples:

  gpusize cluster compare out-default out-kueue

  gpusize cluster compare before=repeats/old after=repeats/new     # folders with repeats of a test, for a verdict"""


def command(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]A [NAME=]B", help="Two folders: of a test, or of tests that are repeats of each other."
        ),
    ],
    phase: Annotated[
        list[str] | None,
        option("Compare this phase.", "NAME", show_default="those from submission that both have"),
    ] = None,
    margin: Margin = "2%",
    skip_errors: SkipErrors = True,
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Say whether phases differ: percentiles with what never ended, with intervals and verdicts."""
    import sys

    from gpusize.cli.question_options import share
    from gpusize.cluster.compare import compare_tests
    from gpusize.cluster.report.compared import print_compared
    from gpusize.report.export import dumps
    from gpusize.report.summary.terminal import make_console

    found = compare_tests(_named(sides), phase or None, margin=share(margin, "--margin"), skip_errors=skip_errors)
    if json:
        sys.stdout.write(dumps(found.to_json()))
    else:
        print_compared(found, make_console())
    return 0


def _named(sides: Sequence[str]) -> dict[str, str]:
    """By name the folder of each side: the last part of its path where none is given, else the path."""
    from gpusize.base.errors import UsageError

    pairs = [("", text) if Path(text).exists() or "=" not in text else tuple(text.split("=", 1)) for text in sides]
    shorts = [Path(path).name or Path(path).resolve().name for _, path in pairs]
    made: dict[str, str] = {}
    for (given, path), short in zip(pairs, shorts, strict=True):
        name = given or (short if shorts.count(short) == 1 else path)
        if name in made:
            raise UsageError(f"two sides are named {name}", None, "name them: old=DIR new=DIR")
        made[name] = path
    return made


def add(app: typer.Typer) -> None:
    """Add the command to its group."""
    app.command("compare", cls=Command, epilog=EPILOG)(command)
