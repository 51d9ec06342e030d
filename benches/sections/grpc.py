"""CPU per unary gRPC call: beside h2load on a canned server, and beside perf_analyzer on a simulated cluster."""

from __future__ import annotations

import base64
import math
import re
from typing import Any
from urllib.parse import urlsplit

from benches.lib.bars import Bar
from benches.lib.cluster import pinned_cluster
from benches.lib.context import Context
from benches.lib.kserve import (
    GRPC_METADATA,
    GRPC_RESPONSE,
    MODEL_INFER,
    infer_reply,
    infer_request,
    simulated_model,
    write_inputs,
)
from benches.lib.peers import peer_program
from benches.lib.procs import BenchFailed, LineServer, pinned, run_measured
from benches.lib.stats import Interval, paired
from benches.lib.turns import Turn, alternate, cpu_rows, steal_note
from benches.sections.cpu import closed
from benches.sections.http2 import Case, against_h2load, gpusize_turn, sent_by_both

__all__ = ["against_perf_analyzer", "grpc"]

IN_FLIGHT = 16
BOUND = 1.0
PERF_ANALYZER = "grpc_cpu_per_request_vs_perf_analyzer"
_REQUEST_COUNT = re.compile(r"Request count: (\d+)")


def grpc(ctx: Context) -> None:
    """The bars beside h2load, then the one beside perf_analyzer."""
    case, command = _case(ctx)
    sent_by_both(ctx, case, command)
    with LineServer(command, ctx.server_core) as server:
        against_h2load(ctx, case, server.port)
    against_perf_analyzer(ctx)


def _case(ctx: Context) -> tuple[Case, list[str]]:
    message, reply, framed = infer_request(), ctx.scratch / "reply.bin", ctx.scratch / "request.bin"
    reply.write_bytes(infer_reply())
    framed.write_bytes(b"\x00" + len(message).to_bytes(4) + message)
    metadata = [word for name, value in GRPC_METADATA for word in ("-H", f"{name}: {value}")]
    case = Case("grpc", MODEL_INFER, ["-d", str(framed), *metadata], _asked())
    return case, [ctx.tools.canned_h2, "--port", "0", "--message", str(reply)]


def _asked() -> dict[str, Any]:
    target = {"transport": "grpc", "method": "POST", "response": GRPC_RESPONSE}
    rows = [base64.b64encode(infer_request()).decode()]
    return {"target": target, "segments": [{"field": 0}], "rows": rows}


def against_perf_analyzer(ctx: Context) -> None:
    """The bar beside perf_analyzer; it is short where that could not be had."""
    try:
        program = peer_program("clients", "perf_analyzer", "perf_analyzer")
    except BenchFailed as absent:
        ctx.report.table("gRPC beside perf_analyzer", ["", "perf_analyzer"], [["not measured", absent]])
        ctx.report.bar(Bar(PERF_ANALYZER, Interval(math.nan, math.nan, math.nan), BOUND))
        return
    _against_perf_analyzer(ctx, program)


def _against_perf_analyzer(ctx: Context, program: str) -> None:
    count, pairs = ctx.size(40_000, 2_000), min(ctx.pairs, 9)
    inputs = write_inputs(ctx.scratch / "inputs.json")
    with pinned_cluster(ctx.server_core, tensor_models=[simulated_model(0.0, IN_FLIGHT)]) as cluster:
        port = int(urlsplit(f"//{cluster.grpc_url}").port or 0)
        folder = ctx.fresh_dir("records")
        asked = {**_asked(), "port": port, "load": closed(IN_FLIGHT), "stop": {"count": count}, "dir": str(folder)}
        asked["target"] = {**asked["target"], "path": MODEL_INFER}
        words = ["-m", "double", "-i", "grpc", "-u", cluster.grpc_url, "--concurrency-range", str(IN_FLIGHT)]
        words += ["--input-data", str(inputs), "--request-count", str(count)]

        def theirs() -> Turn:
            return _perf_analyzer(ctx, [program, *words], count)

        def ours() -> Turn:
            return gpusize_turn(ctx, asked, ctx.fresh_dir("records"))

        def tell(a: Turn, b: Turn) -> str:
            return f"grpc: perf_analyzer {a.cpu_us:.1f} us, gpusize {b.cpu_us:.1f} us"

        peers, own = alternate(pairs, theirs, ours, tell)
    note = (
        f"{count} calls of ModelInfer in each turn, {IN_FLIGHT} in flight, against the simulated cluster. CPU of the "
        f"whole process by wait4, start-up included; the rates hold it too. {steal_note([*peers, *own])}"
    )
    header = ["", "perf_analyzer", "gpusize", "gpusize / perf_analyzer, paired"]
    ctx.report.table(f"gRPC beside perf_analyzer: {pairs} pairs", header, cpu_rows("ModelInfer", peers, own), note)
    ratio = paired([turn.cpu_us for turn in own], [turn.cpu_us for turn in peers])
    ctx.report.bar(Bar(PERF_ANALYZER, ratio, BOUND))


def _perf_analyzer(ctx: Context, command: list[str], count: int) -> Turn:
    finished = run_measured(pinned(command, ctx.client_core))
    told = _REQUEST_COUNT.search(finished.stdout)
    if told is None or int(told[1]) != count:
        raise BenchFailed(f"perf_analyzer did not make {count} requests:\n{finished.stdout[-1000:]}")
    return Turn(count, finished.cpu_s, finished.wall_s, finished.steal)
