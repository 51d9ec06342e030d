"""``gpusize compare``: is B really slower than A?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from gpusize.cli import question_options as question
from gpusize.cli.command import Debug, Json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EPILOG = """Examples:

  gpusize compare runs/before runs/after     # a run, or a folder with repeats of it, each

  gpusize compare old=runs/a new=runs/b --fail-if 'p95 runtime > +5%' --junit gates.xml

  gpusize compare runs/a --noise     # how much its repeats differ from each other"""

FORMATS: Final = ("table", "md")


def command(
    sides: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]RUNS...",
            help="What to compare: a run folder, or a folder of runs that are repeats of each other. All are held "
            "against the first.",
        ),
    ],
    figure: Annotated[
        list[str] | None,
        typer.Option(
            help="Compare this figure: 'p95 runtime', 'mean ttft', 'achieved rate', 'output rate', 'error share'.",
            metavar="TEXT",
            show_default="the usual ones",
        ),
    ] = None,
    margin: Annotated[
        str, typer.Option(help="Differences within this share do not matter.", metavar="SHARE", show_default="2%")
    ] = "2%",
    fail_if: Annotated[
        list[str] | None,
        typer.Option(help="Exit with 1 if the evidence carries this change: 'p95 runtime > +5%'.", metavar="GATE"),
    ] = None,
    noise: Annotated[bool, typer.Option("--noise", help="Show how much the repeats of each side differ.")] = False,
    label: question.Labels = None,
    skip_damaged: question.SkipDamaged = False,
    junit: Annotated[Path | None, typer.Option(help="Write what the gates say as JUnit's XML.", metavar="FILE")] = None,
    written: Annotated[str, typer.Option("--format", help="Print a table, or md: Markdown.", metavar="NAME")] = "table",
    json: Json = False,
    _debug: Debug = False,
) -> int:
    """Say whether systems differ, at each load that was measured on all of them. No load is sent."""
    from gpusize.analysis.compare.gates import Gate, judge
    from gpusize.api.compare import compare
    from gpusize.base.errors import UsageError
    from gpusize.base.files import write_atomic
    from gpusize.cli.shared import note
    from gpusize.options.labels import labels_of
    from gpusize.report.comparison.show import document, junit_xml, markdown, print_comparison
    from gpusize.report.export import dumps
    from gpusize.report.summary.terminal import make_console

    if written not in FORMATS:
        raise UsageError(f"there is no format {written!r}", "format", f"there are {', '.join(FORMATS)}")
    gates = [Gate.parse(text) for text in fail_if or ()]
    if junit is not None and not gates:
        raise UsageError("there are no gates to write", "junit", "give --fail-if")
    found = compare(
        _named(sides),
        figures=figure or None,
        also=[gate.figure for gate in gates],
        margin=question.share(margin, "--margin"),
        labels=labels_of(label),
        skip_damaged=skip_damaged,
    )
    judged = judge(found, gates)
    if junit is not None:
        write_atomic(junit, junit_xml(judged).encode())
    if json:
        typer.echo(dumps(document(found, judged)), nl=False)
    elif written == "md":
        typer.echo(markdown(found, judged, noise=noise), nl=False)
    else:
        print_comparison(found, make_console(), judged, noise=noise)
    failed = [each for each in judged if each.failed]
    if failed:
        note(f"{len(failed)} of {len(judged)} gates failed")
    return 1 if failed else 0


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
