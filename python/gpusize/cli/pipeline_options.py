"""Options of ``gpusize pipeline run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SIZING = "Sizing"
CONTAINERS = "Containers"
MODELS = "Models"
OUTPUT = "Output"

FORCE = ("none", "cont", "stop")

Definition = Annotated[
    Path, typer.Argument(metavar="PIPELINE", help="Clara's pipeline, a Compose file, or the short form.")
]
InputDir = Annotated[Path | None, typer.Argument(metavar="INPUT_DIR", help="The folder that the first operators read.")]
MetricsDir = Annotated[
    Path | None, typer.Option(help="Folder for measurements; without it all rows are printed.", rich_help_panel=OUTPUT)
]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Show a docker run line for each container.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress.", rich_help_panel=OUTPUT)]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.", rich_help_panel=OUTPUT)]
NoPlots = Annotated[bool, typer.Option("--no-plots", help="No pictures.", rich_help_panel=OUTPUT)]
Force = Annotated[
    str,
    typer.Option(
        help="After a failure: none asks, cont goes on, stop stops; alone it is none.", rich_help_panel=CONTAINERS
    ),
]
Policy = Annotated[str, typer.Option(help="The rule: default, cpost, krr or vpa.", rich_help_panel=SIZING)]
WholeCores = Annotated[bool, typer.Option("--whole-cores", help="CPU in whole cores.", rich_help_panel=SIZING)]
CpuLimit = Annotated[bool, typer.Option("--cpu-limit", help="Recommend a CPU limit, too.", rich_help_panel=SIZING)]
Repeat = Annotated[int, typer.Option(min=1, help="Executions of each operator.", rich_help_panel=SIZING)]
Verify = Annotated[
    bool, typer.Option("--verify", help="Run each operator again under its limits.", rich_help_panel=SIZING)
]
CpuCurve = Annotated[str | None, typer.Option(help="Try less CPU: auto, or cores as 1,2,4.", rich_help_panel=SIZING)]
Interval = Annotated[str, typer.Option(help="Time between two readings, 1ms to 1h.", rich_help_panel=SIZING)]
Parameter = Annotated[
    list[str] | None, typer.Option(help="NAME=VALUE for the definition; repeatable.", rich_help_panel=CONTAINERS)
]
User = Annotated[str | None, typer.Option(help="User and group in all containers.", rich_help_panel=CONTAINERS)]
Gpus = Annotated[
    str | None, typer.Option(help="GPUs of all operators: a number, all, none.", rich_help_panel=CONTAINERS)
]
ShmSize = Annotated[str | None, typer.Option(help="Size of /dev/shm in all containers.", rich_help_panel=CONTAINERS)]
Network = Annotated[
    str | None, typer.Option(help="A network that exists, instead of one of the run.", rich_help_panel=CONTAINERS)
]
WritableInputs = Annotated[
    bool, typer.Option("--writable-inputs", help="Operators may write to what they read.", rich_help_panel=CONTAINERS)
]
StartTimeout = Annotated[str, typer.Option(help="Longest time until a container runs.", rich_help_panel=CONTAINERS)]
Timeout = Annotated[str | None, typer.Option(help="Longest time that an operator may run.", rich_help_panel=CONTAINERS)]
WorkDir = Annotated[Path | None, typer.Option(help="Where the data lies while it runs.", rich_help_panel=CONTAINERS)]
Keep = Annotated[Path | None, typer.Option(help="A folder in which the data stays.", rich_help_panel=CONTAINERS)]
ModelsDir = Annotated[Path | None, typer.Option(help="Model repository of Triton.", rich_help_panel=MODELS)]
TritonImage = Annotated[str | None, typer.Option(help="Triton's image.", rich_help_panel=MODELS)]
TritonGpus = Annotated[str | None, typer.Option(help="Triton's GPUs: a number, all, none.", rich_help_panel=MODELS)]
TritonUrl = Annotated[str | None, typer.Option(help="A Triton that runs already.", rich_help_panel=MODELS)]
TritonGrpc = Annotated[str | None, typer.Option(help="Its gRPC address, HOST:PORT.", rich_help_panel=MODELS)]
TritonTimeout = Annotated[str, typer.Option(help="Longest time until a server is ready.", rich_help_panel=MODELS)]
