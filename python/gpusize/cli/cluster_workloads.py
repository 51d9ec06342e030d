"""Options of the commands that submit workloads: what, how many, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from gpusize.cli.command import listed, option

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpusize.cluster.submit.options import SubmitOptions

__all__ = [
    "AllowOthers",
    "Delay",
    "DryRun",
    "MaxInFlight",
    "NumGpus",
    "NumProcesses",
    "NumWorkers",
    "NumWorkloads",
    "Prefix",
    "Process",
    "Pvc",
    "Queue",
    "Rate",
    "Retries",
    "RunFor",
    "Seed",
    "Set",
    "Stages",
    "StartAfter",
    "submit_options",
]

WORKLOAD, ROUNDS, RATE = "Workload", "Rounds", "Rate"

NumWorkloads = Annotated[int | None, option("Submit this many.", "N", names=("--num-workloads", "-n"), min=1)]
NumWorkers = Annotated[int, option("Workers of each workload.", "N", WORKLOAD, min=0)]
NumGpus = Annotated[float, option("GPUs per pod.", "N", WORKLOAD, names=("--num-gpus", "-g"), min=0)]
Pvc = Annotated[bool, option("Give each workload a volume claim.", None, WORKLOAD, names=("--pvc",))]
Queue = Annotated[str, option("Queue of Kueue or KAI.", "NAME", WORKLOAD)]
Set = Annotated[
    list[str] | None,
    option("Set a part of the template, as spec.suspend=true.", "PATH=YAML", WORKLOAD, names=("--set",)),
]
Prefix = Annotated[str, option("Begin names with this.", "TEXT", WORKLOAD)]
NumProcesses = Annotated[
    int, option("Requests of a round, all at once.", "N", ROUNDS, names=("--num-processes", "-p"), min=1)
]
Delay = Annotated[str, option("Pause between rounds.", "TIME", ROUNDS)]
Rate = Annotated[str | None, option("Submit this many per second, whatever the answers.", "RATE", RATE)]
Stages = Annotated[str | None, option("Change the rate over time: '5/s@10m, 5/s..50/s@5m'.", "LIST", RATE)]
Process = Annotated[str, option("Arrivals at a rate: poisson or constant.", "NAME", RATE)]
Seed = Annotated[int, listed("seed", RATE)]
MaxInFlight = Annotated[int, option("Most requests under way at once.", "N", RATE, min=1)]
Retries = Annotated[int, option("Send a request again this often that was put off or failed.", "N", min=0)]
DryRun = Annotated[bool, option("Print what would be done, and stop.", names=("--dry-run",))]
StartAfter = Annotated[str, option("Start a bound pod after this long.", "DELAY", "Pods")]
RunFor = Annotated[
    str | None, option("End a ready pod after this long, if it may end.", "DELAY", "Pods", show_default="never")
]
AllowOthers = Annotated[bool, option("Use a cluster that others use too.", names=("--allow-other-workloads",))]


def submit_options(given: Mapping[str, Any]) -> SubmitOptions:
    """The options as the submission takes them.

    Args:
        given: by the names of the parameters; others in it do not matter.

    Raises:
        UsageError: invalid options.
    """
    from gpusize.base.units import as_duration_s, parse_rate
    from gpusize.cluster.submit.options import SubmitOptions

    same = (
        *("workload_type", "num_workloads", "num_processes", "num_workers", "num_gpus", "project", "namespace", "pvc"),
        *("queue", "prefix", "stages", "process", "seed", "max_in_flight", "retries"),
    )
    rate = given["rate"]
    return SubmitOptions(
        **{name: given[name] for name in same},
        delay_s=as_duration_s(given["delay"], "--delay"),
        overrides=tuple(given["set_"] or ()),
        rate=None if rate is None else parse_rate(rate, "--rate"),
    )
