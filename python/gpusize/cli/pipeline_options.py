"""Options of ``gpusize pipeline run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusize.cli.command import listed

SIZING = "Sizing"
CONTAINERS = "Containers"
MODELS = "Models"
OUTPUT = "Output"

COMMON = (
    "definition",
    "input_dir",
    "metrics_dir",
    "models_dir",
    "force",
    "policy",
    "repeat",
    "verify",
    "parameter",
    "gpus",
    "timeout",
    "json",
)
"""What the short help shows."""
FORCE = ("none", "cont", "stop")

Definition = Annotated[
    Path, typer.Argument(metavar="PIPELINE", help="A pipeline of Clara's, a Compose file, or the short form.")
]
InputDir = Annotated[Path | None, typer.Argument(metavar="INPUT_DIR", help="The folder that the first operators read.")]
MetricsDir = Annotated[
    Path | None,
    typer.Option(
        help="Write measurements into this folder. Without it they are printed.", metavar="DIR", rich_help_panel=OUTPUT
    ),
]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Print a docker run line for each container.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[bool, listed("quiet", OUTPUT)]
Json = Annotated[bool, listed("json", OUTPUT)]
Plots = Annotated[bool, listed("plots", OUTPUT)]
Force = Annotated[
    str,
    typer.Option(
        help="After a failure ask (none), go on (cont) or stop (stop).", metavar="HOW", rich_help_panel=CONTAINERS
    ),
]
Policy = Annotated[str, listed("policy", SIZING)]
WholeCores = Annotated[bool, listed("whole_cores", SIZING)]
CpuLimit = Annotated[bool, listed("cpu_limit", SIZING)]
Repeat = Annotated[
    int, typer.Option(min=1, max=1_000_000, help="Run each operator this many times.", rich_help_panel=SIZING)
]
Verify = Annotated[
    bool, typer.Option("--verify", help="Run each operator again under its limits.", rich_help_panel=SIZING)
]
CpuCurve = Annotated[
    str | None, typer.Option(help="Try less CPU: auto, or cores as 1,2,4.", metavar="LIST", rich_help_panel=SIZING)
]
Interval = Annotated[str, listed("interval", SIZING)]
Parameter = Annotated[
    list[str] | None,
    typer.Option(help="Set a parameter of the pipeline.", metavar="NAME=VALUE", rich_help_panel=CONTAINERS),
]
User = Annotated[
    str | None, typer.Option(help="Run all containers as this user.", metavar="UID[:GID]", rich_help_panel=CONTAINERS)
]
Gpus = Annotated[
    str | None,
    typer.Option(help="Give operators these GPUs: a number, all or none.", metavar="N", rich_help_panel=CONTAINERS),
]
ShmSize = Annotated[
    str | None, typer.Option(help="Size of /dev/shm in all containers.", metavar="SIZE", rich_help_panel=CONTAINERS)
]
Network = Annotated[
    str | None,
    typer.Option(
        help="Use this network, which must exist.",
        metavar="NAME",
        show_default="one of the run's own",
        rich_help_panel=CONTAINERS,
    ),
]
WritableInputs = Annotated[
    bool, typer.Option("--writable-inputs", help="Let operators write to what they read.", rich_help_panel=CONTAINERS)
]
StartTimeout = Annotated[
    str,
    typer.Option(
        help="Give up a container that does not run after this time.", metavar="TIME", rich_help_panel=CONTAINERS
    ),
]
Timeout = Annotated[
    str | None, listed("timeout", CONTAINERS, help="Stop an operator after this time.", show_default=False)
]
WorkDir = Annotated[
    Path | None, typer.Option(help="Keep the data here while it runs.", metavar="DIR", rich_help_panel=CONTAINERS)
]
Keep = Annotated[
    Path | None, typer.Option(help="Keep the data here afterwards.", metavar="DIR", rich_help_panel=CONTAINERS)
]
ModelsDir = Annotated[
    Path | None, typer.Option(help="Start Triton with this model repository.", metavar="DIR", rich_help_panel=MODELS)
]
TritonImage = Annotated[str | None, typer.Option(help="Image of Triton.", metavar="IMAGE", rich_help_panel=MODELS)]
TritonGpus = Annotated[
    str | None, typer.Option(help="Give Triton these GPUs: a number, all or none.", metavar="N", rich_help_panel=MODELS)
]
TritonUrl = Annotated[
    str | None, typer.Option(help="Use this Triton, which runs already.", metavar="URL", rich_help_panel=MODELS)
]
TritonGrpc = Annotated[
    str | None, typer.Option(help="gRPC address of that Triton.", metavar="HOST:PORT", rich_help_panel=MODELS)
]
TritonTimeout = Annotated[
    str,
    typer.Option(help="Give up a server that is not ready after this time.", metavar="TIME", rich_help_panel=MODELS),
]
