"""CPU per server-sent event: answers of 16 events, cut anywhere, parsed, stamped and recorded; aiohttp beside."""

from __future__ import annotations

import json
from typing import Any

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.peers import peer_program
from benches.lib.procs import BenchFailed, LineServer, pinned, run_measured
from benches.lib.stats import bootstrap_median, paired
from benches.sections.cpu import closed

__all__ = ["EVENTS", "OPENAI_RESPONSE", "sse"]

CONNECTIONS = 64
EVENTS = 16
PARTS = 4
CPU_US_PER_EVENT = 2.0
"""500,000 events a second on one core."""

OPENAI_RESPONSE: dict[str, Any] = {
    "framing": "auto",
    "content": ["/choices/0/delta/content"],
    "reasoning": ["/choices/0/delta/reasoning_content"],
    "tokens_in": "/usage/prompt_tokens",
    "tokens_out": "/usage/completion_tokens",
    "tokens_cached": "/usage/prompt_tokens_details/cached_tokens",
    "tokens_reasoning": "/usage/completion_tokens_details/reasoning_tokens",
    "error": "/error",
    "end": "[DONE]",
    "success": [200, 299],
}


def sse(ctx: Context) -> None:
    """The bar is on gpusize alone; the ratio to aiohttp is told."""
    _events(ctx, "server-sent events", [], "sse_cpu_us_per_event")
    # As vLLM and OpenAI write every event when they were asked for the usage of a stream.
    _events(ctx, 'server-sent events with "usage": null', ["--nulls", "true"], "sse_nulls_cpu_us_per_event")


def _events(ctx: Context, title: str, options: list[str], bar: str) -> None:
    command = [ctx.tools.streams, "--port", "0", "--events", str(EVENTS), "--parts", str(PARTS), *options]
    aiohttp = peer_program("clients")
    ours: list[float] = []
    theirs: list[float] = []
    steal: list[float] = []
    with LineServer(command, ctx.server_core) as server:
        for pair in range(ctx.pairs):
            turns = [(ours, _gpusize), (theirs, _aiohttp)]
            for kept, turn in turns if pair % 2 == 0 else reversed(turns):
                value, stolen = turn(ctx, server.port, aiohttp)
                kept.append(value)
                steal.append(stolen)
            measured = f"gpusize {ours[-1]:.3f} us, aiohttp {theirs[-1]:.2f} us per event"
            say(f"{title}, pair {pair + 1}/{ctx.pairs}: {measured}")
    rows = [["CPU us/event", bootstrap_median(theirs), bootstrap_median(ours), paired(ours, theirs)]]
    note = (
        f"Answers of {EVENTS} events of some 170 bytes in {PARTS} writes, {CONNECTIONS} connections. CPU of the whole "
        "process by wait4, start-up included; gpusize records every request, aiohttp parses each event by json.loads. "
        f"Steal meanwhile: median {100 * bootstrap_median(steal).value:.2f} %, at most {100 * max(steal):.2f} %."
    )
    ctx.report.table(title, ["", "aiohttp", "gpusize", "gpusize / aiohttp, paired"], rows, note)
    ctx.report.bar(Bar(bar, bootstrap_median(ours), CPU_US_PER_EVENT, "us"))


def _gpusize(ctx: Context, port: int, _peer: str) -> tuple[float, float]:
    asked = {
        "port": port,
        "target": {"method": "POST", "response": OPENAI_RESPONSE},
        "segments": [{"counter": {"start": 0}}],
        "load": closed(CONNECTIONS),
        "stop": {"duration_ns": ctx.size(3, 1) * 10**9},
        "dir": str(ctx.fresh_dir("records")),
    }
    finished, outcome = ctx.run_client(asked)
    return finished.cpu_s / (outcome["rows"] * EVENTS) * 1e6, finished.steal


def _aiohttp(ctx: Context, port: int, peer: str) -> tuple[float, float]:
    command = [peer, "-m", "benches.programs.aiohttp_sse", str(port), str(CONNECTIONS), str(ctx.size(3, 1))]
    finished = run_measured(pinned(command, ctx.client_core))
    counted = json.loads(finished.stdout)
    if counted["events"] != counted["answers"] * EVENTS:
        raise BenchFailed(f"aiohttp read {counted}, not {EVENTS} events in each answer")
    return finished.cpu_s / counted["events"] * 1e6, finished.steal
