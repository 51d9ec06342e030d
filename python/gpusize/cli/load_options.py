"""Options of the load and of the rows, as every command that takes a load has them."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = [
    "AdaptiveFlag",
    "Arrivals",
    "ArrivalsFormat",
    "ArrivalsFrom",
    "ArrivalsUntil",
    "BudgetOf",
    "Burstiness",
    "Concurrencies",
    "Count",
    "DatasetFile",
    "DatasetFormat",
    "Duration",
    "LoadFile",
    "MostUsers",
    "Passes",
    "Precision",
    "Process",
    "RateScale",
    "Rates",
    "Seed",
    "Sessions",
    "Shuffle",
    "Speed",
    "Stages",
    "StoredPlan",
    "Think",
]

DATASET = "Dataset"
LOAD = "Load"
RECORDED = "Load: recorded"
USERS = "Load: users and overload"
SEARCH = "Load: search for the highest within the SLOs"

Concurrencies = Annotated[
    str | None, typer.Option(help="Requests in flight, one level each: 1,2,4,8.", rich_help_panel=LOAD)
]
Rates = Annotated[str | None, typer.Option(help="Requests per second, one level each.", rich_help_panel=LOAD)]
Stages = Annotated[
    str | None, typer.Option(help="As '1/s@10m, 1/s..50/s@5m' or '8@1m, 8..64@5m'.", rich_help_panel=LOAD)
]
LoadFile = Annotated[
    str | None,
    typer.Option("--load", help="The load from YAML, TOML or JSON; several streams.", rich_help_panel=LOAD),
]
Process = Annotated[
    str | None, typer.Option(help="Arrivals at a rate: poisson, constant or gamma.", rich_help_panel=LOAD)
]
Burstiness = Annotated[
    float | None, typer.Option(help="Of gamma: 1 is Poisson, below 1 burstier.", rich_help_panel=LOAD)
]
Passes = Annotated[
    int | None, typer.Option(help="Requests per level, as a multiple of the concurrency.", rich_help_panel=LOAD)
]
Count = Annotated[int | None, typer.Option(help="Requests per level.", rich_help_panel=LOAD)]
Duration = Annotated[str | None, typer.Option(help="Time per level, or of all streams, as 60s.", rich_help_panel=LOAD)]
Seed = Annotated[int | None, typer.Option(help="Key of all draws; 1.", rich_help_panel=LOAD)]

Arrivals = Annotated[str | None, typer.Option(help="Recorded arrivals: a file, or dataset.", rich_help_panel=RECORDED)]
ArrivalsFormat = Annotated[
    str | None, typer.Option(help="Its format, where it does not show.", rich_help_panel=RECORDED)
]
ArrivalsFrom = Annotated[
    str | None, typer.Option(help="Time of the trace that is left out at first.", rich_help_panel=RECORDED)
]
ArrivalsUntil = Annotated[
    str | None, typer.Option(help="Time of the trace at which it ends.", rich_help_panel=RECORDED)
]
Speed = Annotated[float | None, typer.Option(help="How many times faster the trace goes; 1.", rich_help_panel=RECORDED)]
RateScale = Annotated[
    float | None, typer.Option(help="How many times as many requests it has; 1.", rich_help_panel=RECORDED)
]
StoredPlan = Annotated[
    str | None, typer.Option(help="A stored plan, or a run folder that has one.", rich_help_panel=RECORDED)
]

Sessions = Annotated[
    bool | None, typer.Option("--sessions", help="Conversations begin, not requests.", rich_help_panel=USERS)
]
Think = Annotated[
    str | None,
    typer.Option(help="Pause after an answer: 2s, exp(2s), uniform(1s,3s), ..., recorded.", rich_help_panel=USERS),
]

AdaptiveFlag = Annotated[
    bool | None,
    typer.Option(
        "--adaptive/--no-adaptive", help="Search; the default with an SLO and no levels.", rich_help_panel=SEARCH
    ),
]
Precision = Annotated[
    str | None, typer.Option(help="Ends when the capacity is known to within this; 3%.", rich_help_panel=SEARCH)
]
BudgetOf = Annotated[
    str | None,
    typer.Option("--budget", help="Ends after so many requests, or a time: 4000, 10m.", rich_help_panel=SEARCH),
]
MostUsers = Annotated[int | None, typer.Option(help="No level has more users; 4096.", rich_help_panel=SEARCH)]

DatasetFile = Annotated[
    str | None, typer.Option(help="Rows to send: JSON, JSONL, CSV, TSV or Parquet.", rich_help_panel=DATASET)
]
DatasetFormat = Annotated[str | None, typer.Option(help="Where the suffix does not tell.", rich_help_panel=DATASET)]
Shuffle = Annotated[
    bool, typer.Option("--shuffle", help="Send the rows in a seeded random order.", rich_help_panel=DATASET)
]
