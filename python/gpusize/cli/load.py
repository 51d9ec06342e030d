"""``gpusize load``: draws a load before it is run, and writes its plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusize.cli.command import Command, Commands, Debug, Json, listed, option, taking

if TYPE_CHECKING:
    from gpusize.workload.dataset import Dataset
    from gpusize.workload.load import Load

app = typer.Typer(cls=Commands, help="Preview a load before it runs, and store its plan.", no_args_is_help=True)

SHOW_EPILOG = """Examples:

  gpusize load show --stages '0.5/s@10m, 1/s@10m, 1.5/s@10m, 2/s@30m'

  gpusize load show --profile ramp --speed 60

  gpusize load show --arrivals trace.csv --speed 4 --png trace.png

  gpusize load export --load load.yaml --dataset prompts.jsonl --out plan.parquet"""

_SENT = (
    *("stages", "profile", "rates", "load", "count", "duration", "process", "burstiness", "seed", "sessions"),
    *("arrivals", "arrivals_format", "arrivals_from", "arrivals_until", "speed", "rate_scale", "plan"),
    *("dataset", "dataset_format", "shuffle"),
)
"""Options of loads that have a plan before they run."""
_SHOWN = ("concurrencies", "passes", "think", *_SENT)

ConfigFile = Annotated[Path | None, listed("config")]


@app.callback()
def group() -> None:
    """Preview a load before it runs, and store its plan."""


@app.command("show", cls=Command, epilog=SHOW_EPILOG)
@taking(_SHOWN)
def show(
    config: ConfigFile = None,
    png: Annotated[Path | None, option("Draw it into this .png, .svg or .pdf file too.", "FILE")] = None,
    width: Annotated[
        int | None, option("Columns of the drawing.", min=60, max=120, show_default="those of the terminal")
    ] = None,
    json: Json = False,
    _debug: Debug = False,
    **given: Any,
) -> None:
    """Draw the schedule of a load and say how many requests it will be. Nothing is sent."""
    _show(*_load_of(given, config), png, width, json=json)


@app.command("export", cls=Command)
@taking(_SENT)
def export(
    out: Annotated[Path, option("Write this .parquet, .csv or .jsonl file.", "FILE", names=("-o", "--out"))],
    config: ConfigFile = None,
    _debug: Debug = False,
    **given: Any,
) -> None:
    """Write every due time, row and stream of a load. gpusize run --plan sends them again exactly."""
    from gpusize.base.errors import UsageError
    from gpusize.cli.shared import note
    from gpusize.workload.schedule.export import write_plan

    load, rows = _load_of(given, config)
    if rows is None and load.plan is None:
        note("no dataset is named: the plan sends row 0 only; name it with --dataset")
    sent = _rows(load, rows)
    levels = load.levels(sent)
    if not any("open" in level.plan["load"] for level in levels):
        raise UsageError(
            "a closed loop sends when answers come, so it has no plan before it runs",
            "load export",
            "give rates, stages of rates, streams or a trace",
        )
    count_ = write_plan(out, levels, sent if isinstance(sent, int) else len(sent), rows)
    typer.echo(f"{out}: {count_:,} requests in {len(levels)} level{'' if len(levels) == 1 else 's'}")


def _load_of(given: dict[str, Any], config: Path | None) -> tuple[Load, Dataset | None]:
    from gpusize.base.errors import UsageError
    from gpusize.measure.mix import dealt, streamed, streamed_rows
    from gpusize.options.assemble import read_options
    from gpusize.options.inputs import dataset_from_options
    from gpusize.options.load import load_from_options
    from gpusize.options.search import wants_search
    from gpusize.targets.apis.kserve import is_kserve
    from gpusize.targets.server import Target

    given["order"] = "shuffled" if given.pop("shuffle") else None
    # Nothing is sent: what the sizing calculator's file leaves open plays no part.
    options, _ = read_options(config, given, sends=False)
    if wants_search(options):
        what = "a search has no load before it runs: each level follows from those before it"
        raise UsageError(what, "adaptive", "name levels, as in --concurrencies 1,2,4, to see a load")
    load = load_from_options(options)
    rows = dataset_from_options(options)
    if options.get("workflow") or options.get("command"):
        if load.streams and (rows is not None or all(stream.dataset for stream in load.streams)):
            rows, load = streamed_rows(rows, load)
        return load, rows
    # The address plays no part: only rows and their numbers are wanted.
    target = Target("http://127.0.0.1/v1", model=options.get("model") or "any")
    if load.streams and (rows is not None or all(stream.dataset for stream in load.streams)):
        _, rows, load = streamed(target, rows, load)
    elif rows is not None and not load.streams and len(target.models) > 1 and not is_kserve(options.get("api")):
        rows = dealt(rows, target.models)
    return load, rows


def _rows(load: Load, dataset: Dataset | None) -> Dataset | int:
    """The dataset; without one as many rows as a stored plan needs, else one."""
    if dataset is not None:
        return dataset
    return 1 if load.stored is None else load.stored.rows


def _show(load: Load, dataset: Dataset | None, png: Path | None, width: int | None, *, json: bool) -> None:
    import shutil

    from gpusize.cli.shared import note
    from gpusize.report.plans.load import chart_columns, load_lines
    from gpusize.workload.schedule.export import cost_note
    from gpusize.workload.schedule.preview import outline

    rows = _rows(load, dataset)
    levels, count = load.levels(rows), rows if isinstance(rows, int) else len(rows)
    columns = width or min(max(shutil.get_terminal_size((100, 24)).columns, 60), 120)
    found = outline(levels, count, chart_columns(columns))
    if load.by_passes and dataset is None and load.passes is None:
        note("no dataset is named, so it counts as one row; without --passes a level is whole rounds through all rows")
    told = [*load.notes(dataset), cost_note(levels, load.sample_records)]
    for text in told:
        if text is not None:
            note(text)
    if png is not None:
        from gpusize.report.figures.load import plot_load

        plot_load(levels, count, png)
    if json:
        from gpusize.report.export import dumps

        typer.echo(dumps(found.document()), nl=False)
        return
    for line in load_lines(found, columns):
        typer.echo(line)
    if png is not None:
        typer.echo(str(png))
