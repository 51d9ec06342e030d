"""``gpusize runs``: lists, shows, labels, verifies and removes run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusize.cli import question_options as question
from gpusize.cli.command import Command, Commands, Debug, Json

RUNS = "Run folders, or folders of runs."

app = typer.Typer(cls=Commands, help="List, show, label, check and remove run folders.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """List, show, label, check and remove run folders."""


@app.command("list", cls=Command)
def list_runs(
    folders: Annotated[list[Path] | None, typer.Argument(help=RUNS, show_default="runs")] = None,
    label: question.Labels = None,
    json: Json = False,
    _debug: Debug = False,
) -> None:
    """List runs, oldest first: when, what was measured, how it ended, its labels and its size."""
    from gpusize.cli.shared import note
    from gpusize.options.labels import labels_of
    from gpusize.records.catalog import catalog
    from gpusize.report.export import dumps
    from gpusize.report.runs import list_document, print_runs
    from gpusize.report.summary.terminal import make_console

    found = catalog(folders or [Path("runs")], labels_of(label))
    if json:
        typer.echo(dumps(list_document(found)), nl=False)
    elif found:
        print_runs(found, make_console())
    else:
        note("no run carries these labels")


@app.command("show", cls=Command)
def show(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    json: Json = False,
    _debug: Debug = False,
) -> None:
    """Show what a run was: command, target, dataset, levels, machine. `gpusize report` shows what it measured."""
    from gpusize.records.catalog import facts_of
    from gpusize.records.store import read_run
    from gpusize.report.export import dumps
    from gpusize.report.runs import list_document, print_run
    from gpusize.report.summary.terminal import make_console

    read_run(run)
    found = facts_of(run)
    if json:
        typer.echo(dumps(list_document([found])["runs"][0] | {"about": found.about}), nl=False)
    else:
        print_run(found, make_console())


@app.command("tag", cls=Command)
def tag(
    runs: Annotated[list[Path], typer.Argument(help=RUNS)],
    label: Annotated[
        list[str] | None, typer.Option(help="Give the runs this label.", metavar="KEY=VALUE", show_default=False)
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(help="Take this label away.", metavar="KEY", show_default=False)
    ] = None,
    _debug: Debug = False,
) -> None:
    """Change the labels of runs, by which `estimate`, `compare` and `runs list` choose."""
    from gpusize.base.errors import UsageError
    from gpusize.options.labels import labels_of
    from gpusize.records.catalog import relabel
    from gpusize.records.store import find_runs

    if not (label or remove):
        raise UsageError("no label is named", None, "give --label KEY=VALUE, or --remove KEY")
    for run in dict.fromkeys(found for each in runs for found in find_runs(each)):
        kept = relabel(run, labels_of(label), remove or ())
        _say(f"{run}  {' '.join(f'{name}={value}' for name, value in kept.items()) or 'no labels'}")


@app.command("prune", cls=Command)
def prune(
    folders: Annotated[list[Path], typer.Argument(help=RUNS)],
    older_than: Annotated[
        str | None, typer.Option(help="Remove runs that began longer ago: 30d, 12h.", metavar="TIME")
    ] = None,
    keep: Annotated[
        int | None, typer.Option("--keep-newest", min=0, max=question.MOST, help="Keep the newest N.", metavar="N")
    ] = None,
    label: question.Labels = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them. Without it they are only listed.")] = False,
    _debug: Debug = False,
) -> int:
    """Remove old runs with all that they measured. Without --yes nothing is removed.

    Runs that cannot be read are kept. So are those that are being written; the exit code is 3 then.
    """
    from gpusize.base.errors import StoreError, UsageError
    from gpusize.base.units import as_duration_s
    from gpusize.options.labels import labels_of
    from gpusize.records.catalog import catalog, remove_run, to_remove
    from gpusize.report.runs import size_text

    if older_than is None and keep is None:
        raise UsageError("nothing says which runs go", None, "give --older-than TIME, --keep-newest N, or both")
    age_s = None if older_than is None else as_duration_s(older_than, "--older-than")
    going = to_remove(catalog(folders, labels_of(label)), older_than_s=age_s, keep=keep)
    gone, kept = [], []
    for each in going:
        try:
            if yes:
                remove_run(each.path)
        except StoreError as error:
            _say(f"kept {error}")
            kept.append(each)
            continue
        _say(f"{'removed' if yes else 'would remove'} {each.path}  {size_text(each.size_bytes)}")
        gone.append(each)
    total = size_text(sum(each.size_bytes for each in gone))
    runs = f"{len(gone)} run{'s' if len(gone) != 1 else ''}"
    _say(f"{runs}, {total}" + ("" if yes or not gone else "; --yes removes them"))
    return 3 if kept else 0


@app.command("verify", cls=Command)
def verify(
    runs: Annotated[list[Path], typer.Argument(help=RUNS)],
    _debug: Debug = False,
) -> int:
    """Check that every file of a run is as it was written: parts, rows, checksums. Exit 3 when one is not."""
    from gpusize.analysis.read_levels import verify_run
    from gpusize.base.errors import StoreError
    from gpusize.records.store import find_runs

    damaged = False
    for run in dict.fromkeys(found for each in runs for found in find_runs(each)):
        try:
            levels = verify_run(run)
        except StoreError as error:
            _say(f"damaged: {error}")
            damaged = True
            continue
        for level in levels:
            damaged = damaged or level.problem is not None
            whole = "whole" if level.checksums else "whole as far as can be told: written without checksums"
            _say(f"{run}/levels/{level.name}  {whole if level.problem is None else f'damaged: {level.problem}'}")
        if not levels:
            _say(f"{run}  no level was finished")
    return 3 if damaged else 0


def _say(text: str) -> None:
    from gpusize.base.text import shown
    from gpusize.cli.shared import MOST_CHARS

    typer.echo(shown(text, MOST_CHARS))
