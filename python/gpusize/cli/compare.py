"""``gpusize compare``: is B really slower than A?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusize.cli import question_options as question
from gpusize.cli.command import Debug, Json, option
from gpusize.cli.comparing import FailIf, Figures, Junit, Margin, Wanted, Written

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EPILOG = """Examples:

  gpusize compare runs/before runs/after     # a run, or a folder with repeats of it, each

  gpusize compare old=runs/a new=runs/b --fail-if 'p95 runtime > +5%' --junit gates.xml

  gpusize compare runs --by gpus --gpu-hour-price '2.5 EUR'     # what more GPUs give and cost

  gpusize compare runs --by device --gpu-hour-price 'h100=2.5 EUR, a100=1.2 EUR'

  gpusize compare runs --by instances --out comparison     # tables and figures as files

  gpusize compare runs/a --noise     # how much its repeats differ from each other"""


def command(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]RUNS...",
            help="What to compare: a run folder, or a folder of runs that are repeats of each other. All are held "
            "against the first.",
        ),
    ],
    figure: Figures = None,
    margin: Margin = "2%",
    fail_if: FailIf = None,
    noise: Annotated[bool, typer.Option("--noise", help="Show how much the repeats of each side differ.")] = False,
    by: Annotated[
        str | None,
        typer.Option(help="Group all runs by this: gpus, or a label such as instances or device.", metavar="WHAT"),
    ] = None,
    gpu_hour_price: Annotated[str | None, option("Price of a GPU for an hour: 2.5 or '2.5 EUR'.", "PRICE")] = None,
    label: question.Labels = None,
    skip_damaged: question.SkipDamaged = False,
    junit: Junit = None,
    out: Annotated[
        Path | None, option("Write comparison.json, a .csv and .parquet of each table, and plots here.", "DIR")
    ] = None,
    written: Written = "table",
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Say whether systems differ, at each load that was measured on all of them. No load is sent."""
    from gpusize.api.compare import compare
    from gpusize.options.labels import labels_of

    wanted = Wanted(fail_if, junit, written, json, noise, out)
    found = compare(
        _named(sides),
        figures=figure or None,
        also=wanted.figures,
        margin=question.share(margin, "--margin"),
        labels=labels_of(label),
        skip_damaged=skip_damaged,
        by=by,
        gpu_hour_price=gpu_hour_price,
    )
    return wanted.show(found)


def _named(sides: Sequence[str]) -> Mapping[str, str]:
    """By name the path of each side; its last part is its name where none is given."""
    from gpusize.base.errors import UsageError

    made: dict[str, str] = {}
    paths = [(None, text) if Path(text).exists() or "=" not in text else tuple(text.split("=", 1)) for text in sides]
    shorts = [Path(path).name or Path(path).resolve().name for _, path in paths]
    for (given, path), short in zip(paths, shorts, strict=True):
        name = given or (short if shorts.count(short) == 1 else path)
        if name in made:
            raise UsageError(f"two sides are named {name}", None, "name them: old=runs/a new=runs/b")
        made[name] = path
    return made
