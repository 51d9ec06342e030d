"""``gpusize estimate``: answers from what was measured; sends nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

EPILOG = """[bold]Examples[/bold]

  gpusize estimate runs/20261120T210312Z-7f3a9c --users 250 --slo 'p95 runtime <= 6s'

  gpusize estimate runs/ --label gpu=H200 --users 250 --slo 'p99 ttft <= 500ms' --json

  gpusize estimate runs/ --users 250 --slo 'p95 runtime <= 6s' --method all     [dim]# every method, side by side[/dim]

  gpusize estimate runs/1gpu runs/2gpu runs/4gpu --rate 40/s     [dim]# with the loss between GPUs[/dim]"""

QUESTION = "Question"
TWIN = "Question (for the twin)"
RUNS = "Which runs"


def command(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or a folder of runs; equal levels are pooled as repeats.")
    ],
    users: Annotated[
        float | None, typer.Option(help="Requests in flight to size for.", rich_help_panel=QUESTION)
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(help="Requests per second to size for, as 40/s, instead of users.", rich_help_panel=QUESTION),
    ] = None,
    slo: Annotated[
        list[str] | None, typer.Option(help="An SLO, as 'p95 runtime <= 10s'; repeatable.", rich_help_panel=QUESTION)
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="auto: the twin, or what stands in for it; all, side by side; twin, scaling, slope or crossing.",
            rich_help_panel=QUESTION,
        ),
    ] = "auto",
    gpus: Annotated[
        int | None, typer.Option(help="GPUs that were tested, where the run does not say.", rich_help_panel=QUESTION)
    ] = None,
    gpus_per_replica: Annotated[
        int, typer.Option(help="GPUs come in multiples of this.", rich_help_panel=QUESTION)
    ] = 1,
    host_gpus: Annotated[
        int | None,
        typer.Option(help="GPUs come in whole hosts of so many, which share nothing.", rich_help_panel=QUESTION),
    ] = None,
    think: Annotated[
        str | None, typer.Option(help="Pause of each user after an answer: 2s or exp(2s); none.", rich_help_panel=TWIN)
    ] = None,
    router: Annotated[
        str, typer.Option(help="least_loaded, round_robin or random.", rich_help_panel=TWIN)
    ] = "least_loaded",
    process: Annotated[
        str, typer.Option(help="How requests come at a rate: poisson or constant.", rich_help_panel=TWIN)
    ] = "poisson",
    together: Annotated[
        bool, typer.Option("--together", help="All SLOs are kept by one share of the requests.", rich_help_panel=TWIN)
    ] = False,
    headroom: Annotated[
        str, typer.Option(help="GPUs on top of what is needed, as 20%.", rich_help_panel=QUESTION)
    ] = "0%",
    spare: Annotated[
        int, typer.Option(help="Replicas on top of that, as for one that fails.", rich_help_panel=QUESTION)
    ] = 0,
    label: Annotated[
        list[str] | None, typer.Option(help="Only runs labelled KEY=VALUE; repeatable.", rich_help_panel=RUNS)
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            help="What may differ between runs: targets, models or dataset; repeatable.", rich_help_panel=RUNS
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 when a level is flagged.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")] = False,
    _debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
) -> int:
    """Estimate the GPU count from earlier runs. No load is sent."""
    from gpusize.answer import judge
    from gpusize.assemble import labels_of
    from gpusize.cli.shared import conclude, print_json, print_result
    from gpusize.result import open_run
    from gpusize.units import parse_rate

    per_s = None if rate is None else parse_rate(rate)
    result = open_run(runs, labels=labels_of(label)).asking(users, slo or None, per_s)
    estimates = result.estimates(
        method=method,
        gpus=gpus,
        gpus_per_replica=gpus_per_replica,
        host_gpus=host_gpus,
        allow=allow or (),
        **_pause(think),
        router=router,
        process=process,
        together=together,
        headroom=_share(headroom),
        spare=spare,
    )
    # The truth of a simulated cluster is about users who do not pause, behind its own router.
    simulated = (result.meta.get("targets") or [{}])[0].get("simulated") or {}
    plain = think is None and not together and router == (simulated.get("router") or "least_loaded")
    if json:
        print_json(result, estimates, truth=plain)
    else:
        print_result(result, estimates, truth=plain)
    return conclude(judge(result, estimates, strict=strict))


def _pause(think: str | None) -> dict[str, Any]:
    """Fields of the question for a pause as text."""
    from gpusize.errors import UsageError
    from gpusize.load.grammar import parse_think

    if think is None:
        return {}
    found = parse_think(think)
    if found.kind not in ("fixed", "exponential"):
        raise UsageError(f"a pause that is {found.kind} is not simulated", "--think", "take 2s or exp(2s)")
    return {"think_s": found.first, "think": found.kind} if found.first > 0 else {}


def _share(text: str) -> float:
    """``20%`` or ``0.2`` as a share."""
    from gpusize.errors import UsageError

    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise UsageError(f"{text!r} is no share", "--headroom", "write it as 20% or 0.2") from None
