"""Options of ``gpusize pipeline run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusize.cli.command import listed, option

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
    Path, typer.Argument(metavar="PIPELINE", help="A Clara pipeline, a Compose file, or the short form.")
]
InputDir = Annotated[Path | None, typer.Argument(metavar="INPUT_DIR", help="The folder that the first operators read.")]
MetricsDir = Annotated[
    Path | None, option("Write measurements into this folder. Without it they are printed.", "DIR", OUTPUT)
]
Verbose = Annotated[
    bool, option("Print a docker run line for each container.", panel=OUTPUT, names=("-v", "--verbose"))
]
Quiet = Annotated[bool, listed("quiet", OUTPUT)]
Json = Annotated[bool, listed("json", OUTPUT)]
Plots = Annotated[bool, listed("plots", OUTPUT)]
Force = Annotated[str, option("After a failure ask (none), go on (cont) or stop (stop).", "HOW", CONTAINERS)]
Policy = Annotated[str, listed("policy", SIZING)]
WholeCores = Annotated[bool, listed("whole_cores", SIZING)]
CpuLimit = Annotated[bool, listed("cpu_limit", SIZING)]
Repeat = Annotated[int, option("Run each operator this many times.", panel=SIZING, min=1, max=1_000_000)]
Verify = Annotated[bool, option("Run each operator again under its limits.", panel=SIZING, names=("--verify",))]
CpuCurve = Annotated[str | None, option("Try less CPU: auto, or cores as 1,2,4.", "LIST", SIZING)]
Interval = Annotated[str, listed("interval", SIZING)]
Parameter = Annotated[list[str] | None, option("Set a parameter of the pipeline.", "NAME=VALUE", CONTAINERS)]
User = Annotated[str | None, option("Run all containers as this user.", "UID[:GID]", CONTAINERS)]
Gpus = Annotated[str | None, option("Give operators these GPUs: a number, all or none.", "N", CONTAINERS)]
ShmSize = Annotated[str | None, option("Size of /dev/shm in all containers.", "SIZE", CONTAINERS)]
Network = Annotated[
    str | None, option("Use this network, which must exist.", "NAME", CONTAINERS, show_default="one of the run's own")
]
WritableInputs = Annotated[
    bool, option("Let operators write to what they read.", panel=CONTAINERS, names=("--writable-inputs",))
]
StartTimeout = Annotated[str, option("Give up a container that does not run after this time.", "TIME", CONTAINERS)]
Timeout = Annotated[
    str | None, listed("timeout", CONTAINERS, help="Stop an operator after this time.", show_default=False)
]
WorkDir = Annotated[Path | None, option("Keep the data here while it runs.", "DIR", CONTAINERS)]
Keep = Annotated[Path | None, option("Keep the data here afterwards.", "DIR", CONTAINERS)]
ModelsDir = Annotated[Path | None, option("Start Triton with this model repository.", "DIR", MODELS)]
TritonImage = Annotated[str | None, option("Image of Triton.", "IMAGE", MODELS)]
TritonGpus = Annotated[str | None, option("Give Triton these GPUs: a number, all or none.", "N", MODELS)]
TritonUrl = Annotated[str | None, option("Use this Triton, which runs already.", "URL", MODELS)]
TritonGrpc = Annotated[str | None, option("gRPC address of that Triton.", "HOST:PORT", MODELS)]
TritonTimeout = Annotated[str, option("Give up a server that is not ready after this time.", "TIME", MODELS)]
