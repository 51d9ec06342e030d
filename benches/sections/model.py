"""The simulated cluster, measured over HTTP, beside its own closed form: engine, server and model in one number."""

from __future__ import annotations

import json
import sys
from typing import Any

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.loads import closed_load
from benches.lib.procs import BenchFailed, LineServer, run_measured
from benches.lib.stats import Interval

__all__ = ["closed_form_s", "model"]

MAX_ERROR = 0.03
OUTPUT_TOKENS = 128
CLUSTER: dict[str, Any] = {
    "gpus": 1,
    "iteration_base_s": 0.002,
    "iteration_per_sequence_s": 0.000_1,
    "prefill_per_token_s": 0.000_02,
    "max_batch": 32,
    "output_tokens": {"fixed": {"tokens": OUTPUT_TOKENS}},
    "seed": 1,
}
TARGET: dict[str, Any] = {
    "method": "POST",
    "path": "/v1/completions",
    "headers": [["Content-Type", "application/json"]],
    "response": {
        "framing": "whole",
        "content": ["/choices/0/text"],
        "reasoning": [],
        "tokens_in": "/usage/prompt_tokens",
        "tokens_out": "/usage/completion_tokens",
        "tokens_cached": None,
        "tokens_reasoning": None,
        "error": "/error",
        "end": None,
        "success": [200, 299],
    },
}
BODY = json.dumps({"model": "simulated", "prompt": "How many GPUs does it take? " * 4, "max_tokens": OUTPUT_TOKENS})

_SERVER = """
import json, signal, sys
from gpusize import _core
server = _core.SimServer(sys.argv[1], "127.0.0.1", 0)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print(json.dumps({"port": server.port}), flush=True)
signal.pause()
"""

# Each slot's first two requests are left out: by then the staggered start has spread over a whole residence time.
_MEDIAN = """
import json, sys, polars as pl
rows = pl.scan_parquet(sys.argv[1] + '/**/*.parquet').filter(pl.col('seq') >= int(sys.argv[2])).select(
    pl.len().alias('n'), ((pl.col('end_ns') - pl.col('due_ns')) / 1e9).median().alias('p50_s'),
    pl.col('tokens_in').min().alias('tokens_in'), pl.col('tokens_out').min().alias('tokens_out'),
    pl.col('tokens_out').max().alias('most')).collect()
print(json.dumps(rows.row(0, named=True)))
"""


def closed_form_s(concurrency: int, tokens_in: int, tokens_out: int) -> float:
    """Runtime at a concurrency of at most ``max_batch`` on one GPU.

    A request is in the batch for one iteration per output token, each with all ``concurrency`` sequences active; while
    it is there, every other sequence is replaced once, and each newcomer's prompt makes one iteration longer, its own
    included.
    """
    iteration_s = CLUSTER["iteration_base_s"] + CLUSTER["iteration_per_sequence_s"] * concurrency
    return float(tokens_out * iteration_s + concurrency * tokens_in * CLUSTER["prefill_per_token_s"])


def model(ctx: Context) -> None:
    """p50 runtime at each concurrency, three visits each; the bar is on the worst of them."""
    concurrencies = [1, 4] if ctx.quick else [1, 2, 4, 8, 16, 24, 32]
    command = [sys.executable, "-c", _SERVER, json.dumps(CLUSTER)]
    rows: list[list[object]] = []
    worst = Interval.exact(0.0)
    with LineServer(command, ctx.server_core) as server:
        for concurrency in concurrencies:
            visits = [_visit(ctx, server.port, concurrency) for _ in range(ctx.size(3, 1))]
            errors = sorted(abs(measured_s / true_s - 1) for measured_s, true_s in visits)
            error = Interval(errors[len(errors) // 2], errors[0], errors[-1])
            worst = max(worst, error, key=lambda each: each.hi)
            median_s = sorted(measured_s for measured_s, _ in visits)[len(visits) // 2]
            rows.append([concurrency, f"{median_s * 1e3:.2f}", f"{visits[0][1] * 1e3:.2f}", error])
            say(f"model: concurrency {concurrency}: {median_s * 1e3:.2f} ms, closed form {visits[0][1] * 1e3:.2f} ms")
    note = f"One GPU, {OUTPUT_TOKENS} output tokens, max_batch {CLUSTER['max_batch']}; intervals are whole ranges."
    ctx.report.table(
        "simulated cluster over HTTP",
        ["concurrency", "p50 runtime, ms", "closed form, ms", "relative error"],
        rows,
        note,
    )
    ctx.report.bar(Bar("model_p50_relative_error", worst, MAX_ERROR))


def _visit(ctx: Context, port: int, concurrency: int) -> tuple[float, float]:
    """Measured p50 runtime and its closed form, seconds."""
    folder = ctx.fresh_dir("records")
    load = closed_load(concurrency, "staggered")
    count = max(20, ctx.size(8, 4) * concurrency)
    asked = {"port": port, "target": TARGET, "segments": [{"static": BODY}], "load": load, "stop": {"count": count}}
    ctx.run_client({**asked, "dir": str(folder)})
    skipped = 2 * concurrency
    said = json.loads(run_measured([sys.executable, "-c", _MEDIAN, str(folder), str(skipped)]).stdout)
    if said["n"] != count - skipped or not said["tokens_out"] == said["most"] == OUTPUT_TOKENS:
        raise BenchFailed(f"{count} requests with {OUTPUT_TOKENS} tokens each were asked for, found {said}")
    return said["p50_s"], closed_form_s(concurrency, said["tokens_in"], said["tokens_out"])
