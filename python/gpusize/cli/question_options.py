"""Options of a question about GPUs, as every command that answers one from earlier runs has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = [
    "Allow",
    "Debug",
    "Gpus",
    "GpusPerReplica",
    "Headroom",
    "Json",
    "Labels",
    "Process",
    "Router",
    "Runs",
    "SkipDamaged",
    "Slos",
    "Spare",
    "Think",
    "Together",
    "fields",
]

QUESTION = "Question"
TWIN = "Question (method twin)"
RUNS = "Which runs"

Runs = Annotated[
    list[Path], typer.Argument(help="Run folders, or a folder of runs; equal levels are pooled as repeats.")
]
Slos = Annotated[
    list[str] | None,
    typer.Option("--slo", help="An SLO, as 'p95 runtime <= 10s'; repeatable.", rich_help_panel=QUESTION),
]
Gpus = Annotated[
    int | None, typer.Option(help="GPUs that were tested, where the run does not say.", rich_help_panel=QUESTION)
]
GpusPerReplica = Annotated[int, typer.Option(help="GPUs come in multiples of this.", rich_help_panel=QUESTION)]
Headroom = Annotated[str, typer.Option(help="GPUs on top of what is needed, as 20%.", rich_help_panel=QUESTION)]
Spare = Annotated[int, typer.Option(help="Replicas on top of that, as for one that fails.", rich_help_panel=QUESTION)]
Think = Annotated[
    str | None, typer.Option(help="Pause of each user after an answer: 2s or exp(2s); none.", rich_help_panel=TWIN)
]
Router = Annotated[str, typer.Option(help="least_loaded, round_robin or random.", rich_help_panel=TWIN)]
Process = Annotated[str, typer.Option(help="How requests come at a rate: poisson or constant.", rich_help_panel=TWIN)]
Together = Annotated[
    bool, typer.Option("--together", help="All SLOs are kept by one share of the requests.", rich_help_panel=TWIN)
]
Labels = Annotated[
    list[str] | None, typer.Option("--label", help="Only runs labelled KEY=VALUE; repeatable.", rich_help_panel=RUNS)
]
Allow = Annotated[
    list[str] | None,
    typer.Option(help="What may differ between runs: targets, models or dataset; repeatable.", rich_help_panel=RUNS),
]
SkipDamaged = Annotated[
    bool, typer.Option("--skip-damaged", help="Leave out levels whose files are damaged.", rich_help_panel=RUNS)
]
Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks.")]


def fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """What these options say of a question, as ``Result.estimates`` and ``what_if`` take it.

    Args:
        given: the arguments of a command by name, others among them.

    Raises:
        UsageError: a pause or a share that cannot be meant.
    """
    plain = ("gpus", "gpus_per_replica", "router", "process", "together", "spare")
    asked = {name: given[name] for name in plain}
    return {**asked, "allow": given["allow"] or (), "headroom": _share(given["headroom"]), **_pause(given["think"])}


def _pause(think: str | None) -> dict[str, Any]:
    """Fields of the question for a pause as text.

    Raises:
        UsageError: no pause, or one that is not simulated.
    """
    from gpusize.base.errors import UsageError
    from gpusize.workload.load.grammar import parse_think

    if think is None:
        return {}
    found = parse_think(think)
    if found.kind not in ("fixed", "exponential"):
        raise UsageError(f"a pause that is {found.kind} is not simulated", "--think", "take 2s or exp(2s)")
    return {"think_s": found.first, "think": found.kind} if found.first > 0 else {}


def _share(text: str) -> float:
    """``20%`` or ``0.2`` as a share.

    Raises:
        UsageError: neither.
    """
    from gpusize.base.errors import UsageError

    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise UsageError(f"{text!r} is no share", "--headroom", "write it as 20% or 0.2") from None
