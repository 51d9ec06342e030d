"""``gpusize dataset``: makes rows to send, and shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusize.cli.command import Command, Commands, Debug, listed, option

app = typer.Typer(cls=Commands, help="Make datasets, and preview them.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Make datasets, and preview them."""


@app.command("traccc", cls=Command)
def traccc(
    folder: Annotated[Path, typer.Argument(help="Folder of event*-cells.csv, or one of these files.")],
    out: Annotated[Path, option("Write this file. .npz is compact.", "FILE", names=("-o", "--out"))],
    count: Annotated[
        int | None,
        option(
            "Take this many events, in order of names.", names=("-n", "--count"), min=1, max=2**53, show_default="all"
        ),
    ] = None,
    layout: Annotated[
        str, option("features (GEOMETRY_ID, FEATURES) or cells (CELL_POSITIONS, CELL_PROPERTIES).", "NAME")
    ] = "features",
    tml: Annotated[bool, option("Write FEATURES alone, with all columns.", names=("--tml",))] = False,
    _debug: Debug = False,
) -> None:
    """Turn traccc's event files into input for its server, for --input."""
    from gpusize.workload.dataset.traccc import convert_events

    events, cells = convert_events(folder, out, count=count, layout=layout, tml=tml)
    typer.echo(f"{out}: {events} events, {cells} cells")


@app.command("synthetic", cls=Command)
def synthetic(
    description: Annotated[
        str, typer.Argument(help="As 'input=normal(512,64) output=lognormal(128,0.5) rows=200 prefix=0.3 seed=1'.")
    ],
    out: Annotated[Path, option("Write this JSON Lines file.", "FILE", names=("-o", "--out"))],
    tokenizer: Annotated[str | None, listed("tokenizer")] = None,
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


@app.command("show", cls=Command)
def show(
    file: Annotated[str, typer.Argument(help="A dataset, as --dataset takes it.")],
    dataset_key: Annotated[str | None, listed("dataset_key")] = None,
    dataset_format: Annotated[str | None, listed("dataset_format")] = None,
    tokenizer: Annotated[
        str | None,
        listed(
            "tokenizer", help="Count tokens with this tokenizer.json; estimate counts characters.", show_default=False
        ),
    ] = None,
    head: Annotated[int, option("Show this many rows.", min=0, max=2**31 - 1)] = 5,
    _debug: Debug = False,
) -> None:
    """Show a dataset's first rows, its lengths, and what is unusual about it."""
    from gpusize.workload.dataset import Dataset
    from gpusize.workload.dataset.preview import describe

    for line in describe(Dataset.read(file, dataset_key, dataset_format, tokenizer=tokenizer), head):
        typer.echo(line)
