"""``gpusize dataset``: makes rows to send, and shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Make rows to send, and look at them.", no_args_is_help=True, rich_markup_mode="rich")

Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


@app.callback()
def group() -> None:
    """Make rows to send, and look at them."""


@app.command("traccc")
def traccc(
    folder: Annotated[Path, typer.Argument(help="Folder of event*-cells.csv, or one of these files.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write; compact when it ends in .npz.")],
    count: Annotated[int | None, typer.Option("-n", "--count", help="Events, in order of names; all.")] = None,
    layout: Annotated[
        str,
        typer.Option(help="features: GEOMETRY_ID and FEATURES; cells: CELL_POSITIONS and CELL_PROPERTIES."),
    ] = "features",
    tml: Annotated[bool, typer.Option("--tml", help="FEATURES alone, with all columns.")] = False,
    _debug: Debug = False,
) -> None:
    """Turn traccc's event files into input for its server, for --input."""
    from gpusize.workload.dataset.traccc import convert_events

    events, cells = convert_events(folder, out, count=count, layout=layout, tml=tml)
    typer.echo(f"{out}: {events} events, {cells} cells")


@app.command("synthetic")
def synthetic(
    description: Annotated[
        str, typer.Argument(help="As 'input=normal(512,64) output=lognormal(128,0.5) rows=200 prefix=0.3 seed=1'.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="JSON Lines file to write.")],
    tokenizer: Annotated[
        str | None, typer.Option(help="tokenizer.json to count with; else 4 characters per token.")
    ] = None,
    _debug: Debug = False,
) -> None:
    """Make up prompts of wanted lengths."""
    from gpusize.cli.shared import note
    from gpusize.records.store import write_atomic
    from gpusize.workload.dataset import Dataset
    from gpusize.workload.dataset.preview import write_rows

    made = Dataset.from_synthetic(description, tokenizer)
    write_atomic(out, "".join(f"{line}\n" for line in write_rows(made)).encode())
    for text in made.notes:
        note(text)
    typer.echo(f"{out}: {len(made)} rows")


@app.command("show")
def show(
    file: Annotated[str, typer.Argument(help="A dataset, as --dataset takes it.")],
    dataset_key: Annotated[str | None, typer.Option(help="The field to send.")] = None,
    dataset_format: Annotated[str | None, typer.Option(help="Where suffix and contents do not tell.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="tokenizer.json, or estimate.")] = None,
    head: Annotated[int, typer.Option(min=0, help="Rows to show.")] = 5,
    _debug: Debug = False,
) -> None:
    """Show a dataset's first rows, its lengths, and what is to be known about it."""
    from gpusize.workload.dataset import Dataset
    from gpusize.workload.dataset.preview import describe

    for line in describe(Dataset.read(file, dataset_key, dataset_format, tokenizer=tokenizer), head):
        typer.echo(line)
