"""``gpusize simulate``: the simulated cluster by itself."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gpusize.cli.command import Debug, listed

EPILOG = """Examples:

  gpusize simulate --gpus 4 --port 8000

  gpusize simulate --fail-rate 0.01 --stall 1s --seed 7

  gpusize simulate --replicas '1@0s,2@30s' --start-delay 5s"""

CLUSTER = "Cluster"
FAULTS = "Faults"


def command(
    gpus: Annotated[
        int | None, listed("gpus", CLUSTER, help="GPUs of the cluster.", show_default="2", min=1, max=100_000)
    ] = None,
    replicas: Annotated[
        str | None,
        listed("replicas", CLUSTER, help="Replicas over time, as 1@0s,2@30s. --gpus is the most there can be."),
    ] = None,
    start_delay: Annotated[
        str | None, listed("start_delay", CLUSTER, help="Let a new replica take this long to start.")
    ] = None,
    model: Annotated[str | None, listed("model", CLUSTER, help="Name of the model.", show_default="simulated")] = None,
    max_batch: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000_000, help="Requests that a GPU serves at once.", show_default="32", rich_help_panel=CLUSTER
        ),
    ] = None,
    output_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2**31 - 1,
            help="Answer with exactly this many tokens.",
            show_default="lognormal",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    seed: Annotated[int | None, listed("seed", CLUSTER, min=0, max=2**63 - 1)] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="The cluster's configuration. Options win over it.", metavar="JSON", rich_help_panel=CLUSTER),
    ] = None,
    fail_rate: Annotated[
        float | None, typer.Option(help="Answer this share with status 500.", metavar="SHARE", rich_help_panel=FAULTS)
    ] = None,
    reset_rate: Annotated[
        float | None, typer.Option(help="Reset this share halfway.", metavar="SHARE", rich_help_panel=FAULTS)
    ] = None,
    malformed: Annotated[
        float | None, typer.Option(help="Break the answers of this share.", metavar="SHARE", rich_help_panel=FAULTS)
    ] = None,
    stall: Annotated[
        str | None, typer.Option(help="Freeze all GPUs once for this long.", metavar="TIME", rich_help_panel=FAULTS)
    ] = None,
    host: Annotated[str, typer.Option(help="Listen on this address.", metavar="IP")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Listen on this port; 0 for any free one.", metavar="PORT")
    ] = 0,
    grpc_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Listen on this port for gRPC; 0 for any free one.", metavar="PORT")
    ] = 0,
    json_ready: Annotated[
        bool,
        typer.Option("--json-ready", help="Print one JSON line when ready. End when standard input ends."),
    ] = False,
    _debug: Debug = False,
) -> None:
    """Serve a simulated GPU cluster until Ctrl-C: the OpenAI APIs, KServe v2 (HTTP and gRPC), /generate, /metrics."""
    from gpusize.engine.limits import allow_most_files
    from gpusize.targets.simulated.serve import cluster_config, serve

    allow_most_files()
    config = cluster_config(
        cluster,
        gpus=gpus,
        replicas=replicas,
        start_delay=start_delay,
        model=model,
        max_batch=max_batch,
        output_tokens=output_tokens,
        seed=seed,
        fail_rate=fail_rate,
        reset_rate=reset_rate,
        malformed_rate=malformed,
        stall=stall,
    )
    questions = sys.stdin if json_ready else None
    serve(config, host, port, grpc_port=grpc_port, out=sys.stdout, questions=questions)
