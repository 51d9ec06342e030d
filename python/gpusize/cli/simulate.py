"""``gpusize simulate``: the simulated cluster by itself."""

from __future__ import annotations

import json
import sys
from typing import Annotated

from gpusize.cli import policies
from gpusize.cli.command import Debug, listed, option

EPILOG = """Examples:

  gpusize simulate --gpus 4 --port 8000

  gpusize simulate --fail-rate 0.01 --stall 1s --seed 7

  gpusize simulate --replicas '1@0s,2@30s' --start-delay 5s

  gpusize simulate --policy hpa.yaml --scrape-interval 1s --sync-period 1s --start-delay 5s"""

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
    policy: policies.OnePolicy = None,
    signal: policies.Signals = None,
    scrape_interval: policies.ScrapeInterval = "15s",
    sync_period: policies.SyncPeriod = "15s",
    model: Annotated[str | None, listed("model", CLUSTER, help="Name of the model.", show_default="simulated")] = None,
    max_batch: Annotated[
        int | None,
        option("Requests that a GPU serves at once.", panel=CLUSTER, min=1, max=1_000_000, show_default="32"),
    ] = None,
    output_tokens: Annotated[
        int | None,
        option("Answer with exactly this many tokens.", panel=CLUSTER, min=1, max=2**31 - 1, show_default="lognormal"),
    ] = None,
    seed: Annotated[int | None, listed("seed", CLUSTER, min=0, max=2**63 - 1)] = None,
    cluster: Annotated[str | None, option("The cluster's configuration. Options override it.", "JSON", CLUSTER)] = None,
    fail_rate: Annotated[float | None, option("Answer this share with status 500.", "SHARE", FAULTS)] = None,
    reset_rate: Annotated[float | None, option("Reset this share halfway.", "SHARE", FAULTS)] = None,
    malformed: Annotated[float | None, option("Break the answers of this share.", "SHARE", FAULTS)] = None,
    stall: Annotated[str | None, option("Freeze all GPUs once for this long.", "TIME", FAULTS)] = None,
    host: Annotated[str, option("Listen on this address.", "IP")] = "127.0.0.1",
    port: Annotated[int, option("Listen on this port; 0 for any free one.", "PORT", min=0, max=65535)] = 0,
    grpc_port: Annotated[
        int, option("Listen on this port for gRPC; 0 for any free one.", "PORT", min=0, max=65535)
    ] = 0,
    json_ready: Annotated[
        bool, option("Print one JSON line when ready. End when standard input ends.", names=("--json-ready",))
    ] = False,
    _debug: Debug = False,
) -> None:
    """Serve a simulated GPU cluster until Ctrl-C: the OpenAI APIs, KServe v2 (HTTP and gRPC), /generate, /metrics."""
    from gpusize.base.errors import UsageError
    from gpusize.cli.shared import note as tell
    from gpusize.engine.limits import allow_most_files
    from gpusize.targets.simulated.serve import cluster_config, serve

    allow_most_files()
    scaler = None
    if policy is not None:
        found = policies.autoscalers([policy], signal or (), (scrape_interval, sync_period))
        if len(found) != 1:
            raise UsageError(f"there are {len(found)} policies in it", str(policy), "give a file with one")
        scaler = json.loads(found[0].to_json(1))
        for note in found[0].notes:
            tell(f"{found[0].name}: {note}")
    config = cluster_config(
        cluster,
        autoscaler=scaler,
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
