"""``gpusize load``: draws a load before it is run, and writes its plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusize.cli import load_options

if TYPE_CHECKING:
    from gpusize.workload.dataset import Dataset
    from gpusize.workload.load import Load

app = typer.Typer(
    help="Look at a load before it is run, and store its plan.", no_args_is_help=True, rich_markup_mode="rich"
)

SHOW_EPILOG = """[bold]Examples[/bold]

  gpusize load show --stages '0.5/s@10m, 1/s@10m, 1.5/s@10m, 2/s@30m'

  gpusize load show --arrivals trace.csv --speed 4 --png trace.png

  gpusize load export --load load.yaml --dataset prompts.jsonl --out plan.parquet"""

ConfigFile = Annotated[Path | None, typer.Option(help="Options from a configuration file or a run.json.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


@app.callback()
def group() -> None:
    """Look at a load before it is run, and store its plan."""


@app.command("show", epilog=SHOW_EPILOG)
def show(
    stages: load_options.Stages = None,
    load_file: load_options.LoadFile = None,
    arrivals: load_options.Arrivals = None,
    arrivals_format: load_options.ArrivalsFormat = None,
    arrivals_from: load_options.ArrivalsFrom = None,
    arrivals_until: load_options.ArrivalsUntil = None,
    speed: load_options.Speed = None,
    rate_scale: load_options.RateScale = None,
    rates: load_options.Rates = None,
    concurrencies: load_options.Concurrencies = None,
    plan: load_options.StoredPlan = None,
    process: load_options.Process = None,
    burstiness: load_options.Burstiness = None,
    think: load_options.Think = None,
    sessions: load_options.Sessions = None,
    passes: load_options.Passes = None,
    count: load_options.Count = None,
    duration: load_options.Duration = None,
    seed: load_options.Seed = None,
    dataset: load_options.DatasetFile = None,
    dataset_format: load_options.DatasetFormat = None,
    shuffle: load_options.Shuffle = False,
    config: ConfigFile = None,
    png: Annotated[Path | None, typer.Option(help="Draw it into this file too: .png, .svg or .pdf.")] = None,
    width: Annotated[int | None, typer.Option(min=60, max=120, help="Columns; those of the terminal.")] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
    _debug: Debug = False,
) -> None:
    """Draw the schedule of a load and say how many requests it will be; nothing is sent."""
    given = dict(locals())
    for name in ("png", "width", "json"):
        given.pop(name)
    _show(*_load_of(given), png, width, json=json)


@app.command("export")
def export(
    out: Annotated[Path, typer.Option("-o", "--out", help="File to write: .parquet, .csv or .jsonl.")],
    stages: load_options.Stages = None,
    load_file: load_options.LoadFile = None,
    arrivals: load_options.Arrivals = None,
    arrivals_format: load_options.ArrivalsFormat = None,
    arrivals_from: load_options.ArrivalsFrom = None,
    arrivals_until: load_options.ArrivalsUntil = None,
    speed: load_options.Speed = None,
    rate_scale: load_options.RateScale = None,
    rates: load_options.Rates = None,
    plan: load_options.StoredPlan = None,
    process: load_options.Process = None,
    burstiness: load_options.Burstiness = None,
    sessions: load_options.Sessions = None,
    count: load_options.Count = None,
    duration: load_options.Duration = None,
    seed: load_options.Seed = None,
    dataset: load_options.DatasetFile = None,
    dataset_format: load_options.DatasetFormat = None,
    shuffle: load_options.Shuffle = False,
    config: ConfigFile = None,
    _debug: Debug = False,
) -> None:
    """Write every due time, row and stream of a load; --plan of gpusize run sends them again exactly."""
    from gpusize.base.errors import UsageError
    from gpusize.cli.shared import note
    from gpusize.workload.schedule.export import write_plan

    given = dict(locals())
    for name in ("out", "note", "UsageError", "write_plan"):
        given.pop(name)
    load, rows = _load_of(given)
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


def _load_of(given: dict[str, Any]) -> tuple[Load, Dataset | None]:
    """The load that the options describe, and the rows that they name."""
    from gpusize.base.errors import UsageError
    from gpusize.measure.mix import dealt, streamed, streamed_rows
    from gpusize.options import dataset_from_options, load_from_options
    from gpusize.options.assemble import read_options
    from gpusize.options.search import wants_search
    from gpusize.targets.kserve.prepare import is_kserve
    from gpusize.targets.server import Target

    given.pop("_debug")
    config = given.pop("config")
    given |= {"load": given.pop("load_file"), "order": "shuffled" if given.pop("shuffle") else None}
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
