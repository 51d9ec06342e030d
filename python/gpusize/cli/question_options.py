"""Options of a question about GPUs, as every command that answers one from earlier runs has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from gpusize.cli.command import listed, option

__all__ = [
    "Allow",
    "Gpus",
    "GpusPerReplica",
    "Headroom",
    "Labels",
    "Process",
    "Risk",
    "Router",
    "Runs",
    "RunsIfAny",
    "SkipDamaged",
    "Slos",
    "Spare",
    "Think",
    "Together",
    "Users",
    "fields",
    "share",
]

QUESTION = "Sizing"
TWIN = "Twin: the model of a cluster that estimates come from"
RUNS = "Runs to read"
STORED = "the run's own"
"""Default of what a run folder knows."""
MOST = 1_000_000
"""GPUs and replicas, as in ``gpusize.base.numeric``."""
RISK = 2.0
"""As in ``gpusize.estimate.question``, which takes long to import."""

RUN_FOLDERS = typer.Argument(help="Run folders, or folders of runs. Equal levels count as repeats.")
Runs = Annotated[list[Path], RUN_FOLDERS]
RunsIfAny = Annotated[list[Path] | None, RUN_FOLDERS]
Users = Annotated[float | None, listed("users", QUESTION, show_default=STORED)]
Slos = Annotated[list[str] | None, listed("slo", QUESTION, show_default=STORED)]
Gpus = Annotated[int | None, listed("gpus", QUESTION, help="GPUs that were measured, where the run does not say.")]
GpusPerReplica = Annotated[int, option("GPUs in one replica of the model.", panel=QUESTION, min=1, max=MOST)]
Headroom = Annotated[str, option("Add this share of GPUs, as 20%.", "SHARE", QUESTION)]
Spare = Annotated[int, option("Add this many replicas, for those that fail.", panel=QUESTION, min=0, max=MOST)]
Think = Annotated[str | None, listed("think", TWIN, help="Let users pause after an answer: 2s or exp(2s).")]
Router = Annotated[
    str, option("Route requests: least_loaded, round_robin, random, or shared (one queue for all).", "RULE", TWIN)
]
Process = Annotated[str, listed("process", TWIN, help="Arrivals at a rate: poisson or constant.")]
Together = Annotated[bool, option("The same requests must meet all SLOs.", panel=TWIN, names=("--together",))]
Risk = Annotated[float, option("Weigh a replica too few this many times as heavily as one too many.", "RATIO", TWIN)]
Labels = Annotated[list[str] | None, listed("label", RUNS, help="Read only runs with this label.")]
Allow = Annotated[list[str] | None, option("Let runs differ in this: targets, models or dataset.", "WHAT", RUNS)]
SkipDamaged = Annotated[
    bool, option("Leave out levels whose files are damaged.", panel=RUNS, names=("--skip-damaged",))
]


def fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """What these options say of a question, as ``Result.estimates`` and ``what_if`` take it.

    Args:
        given: the arguments of a command by name, others among them.

    Raises:
        UsageError: a pause or a share is out of range.
    """
    plain = ("gpus", "gpus_per_replica", "router", "process", "together", "spare", "risk")
    asked = {name: given[name] for name in plain}
    return {
        **asked,
        "allow": given["allow"] or (),
        "headroom": share(given["headroom"], "--headroom"),
        **_pause(given["think"]),
    }


def _pause(think: str | None) -> dict[str, Any]:
    """Fields of the question for a pause as text.

    Raises:
        UsageError: no pause, or one that is not simulated.
    """
    if think is None:
        return {}
    from gpusize.base.errors import UsageError
    from gpusize.workload.load.grammar import parse_think

    found = parse_think(think)
    if found.kind not in ("fixed", "exponential"):
        raise UsageError(f"the twin does not simulate {found.kind} pauses", "--think", "take 2s or exp(2s)")
    return {"think_s": found.first, "think": found.kind} if found.first > 0 else {}


def share(text: str, option: str) -> float:
    """``20%`` or ``0.2`` as a share.

    Raises:
        UsageError: neither.
    """
    from gpusize.base.errors import UsageError

    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise UsageError(f"{text!r} is not a share", option, "write it as 20% or 0.2") from None
