"""CPU per streamed answer of 16 events: gpusize, the field's LLM generators, and wrk, which parses nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.generators import FAST, Taken, take
from benches.lib.llm_tools import TOOLS, LlmTool, Reported, take_llm
from benches.lib.peers import peer_program, peer_version
from benches.lib.procs import BenchFailed
from benches.lib.rounds import present, rotate, tell_missing
from benches.lib.slopes import Slope, over, slope
from benches.lib.stats import Interval, bootstrap_median, paired
from benches.lib.turns import whole_range
from benches.sections.load_throughput import ours
from benches.sections.sse import OPENAI_RESPONSE

__all__ = ["EVENTS", "chat", "streamed"]

CONNECTIONS = 64
EVENTS = 16
LENGTHS, LENGTHS_QUICK = (1, 4), (1, 2)
"""Seconds of the short and of the long turn of gpusize and wrk."""
ROUNDS = 5
TOOL_LENGTHS, TOOL_LENGTHS_QUICK = (3, 12), (2, 6)
TOOL_TURNS = 2
CPU_MS = 0.05
VS_PYTHON = 1 / 50
CHAT = {"model": "m", "messages": [{"role": "user", "content": "How many GPUs does it take?"}], "stream": True}


def chat() -> dict[str, Any]:
    """What benches.client is told: a streamed chat completion."""
    target = {
        "method": "POST",
        "path": "/v1/chat/completions",
        "headers": [["Content-Type", "application/json"]],
        "response": OPENAI_RESPONSE,
    }
    return {
        "target": target,
        "segments": [{"field": 0}],
        "rows": [base64.b64encode(json.dumps(CHAT).encode()).decode()],
    }


def streamed(ctx: Context) -> None:
    """Slopes between two lengths for all of them, so that nobody's start-up counts.

    Raises BenchFailed when one of the others could not be measured, after everything else is told.
    """
    server = [ctx.tools.canned, "--port", "0", "--sse-events", str(EVENTS)]
    wrk = FAST[0]
    short, long = LENGTHS_QUICK if ctx.quick else LENGTHS
    found = rotate(
        ctx.size(ROUNDS, 1),
        {
            "wrk": lambda: _slope(take(ctx, wrk, short, server), take(ctx, wrk, long, server)),
            "gpusize": lambda: _slope(ours(ctx, short, server, chat()), ours(ctx, long, server, chat())),
        },
        lambda found: f"{found.cpu_s * 1e6:.2f} us",
    )
    tools, missing = present(TOOLS, lambda tool: peer_program(tool.name))
    costs, failed = {}, []
    for name, tool in tools.items():
        try:
            costs[name] = _tool(ctx, tool, server)
        except BenchFailed as error:
            failed.append(f"{name}: {error}")
    _table(ctx, found, costs)
    tell_missing(ctx, missing)
    _bars(ctx, found["gpusize"], {name: slopes for name, (slopes, _) in costs.items()})
    if failed:
        raise BenchFailed("; ".join(failed))


def _slope(short: Taken, long: Taken) -> Slope:
    return slope(short.requests, short.cpu_s, long.requests, long.cpu_s, long.rate)


def _tool(ctx: Context, tool: LlmTool, server: Sequence[str]) -> tuple[list[Slope], Reported]:
    """Slopes, and the last long run."""
    lengths = TOOL_LENGTHS_QUICK if ctx.quick else TOOL_LENGTHS
    slopes, runs = [], []
    for turn in range(ctx.size(TOOL_TURNS, 1)):
        short, long = (take_llm(ctx, tool, ("closed", CONNECTIONS), seconds, server) for seconds in lengths)
        slopes.append(slope(short.served, short.cpu_s, long.served, long.cpu_s, long.rate))
        runs.append(long)
        say(f"{tool.name} {turn + 1}: {slopes[-1].cpu_s * 1e3:.2f} ms, {long.rate:.0f}/s")
    return slopes, runs[-1]


def _table(ctx: Context, found: dict[str, list[Slope]], costs: dict[str, tuple[list[Slope], Reported]]) -> None:
    gpusize = found["gpusize"]
    short, long = LENGTHS_QUICK if ctx.quick else LENGTHS
    tool_short, tool_long = TOOL_LENGTHS_QUICK if ctx.quick else TOOL_LENGTHS
    rows: list[list[object]] = [
        [name, bootstrap_median([s.cpu_s * 1e3 for s in slopes]), bootstrap_median([s.rate for s in slopes]), ""]
        for name, slopes in found.items()
    ]
    for name, (slopes, last) in costs.items():
        kept = f"{last.connections} connections for {last.served} requests"
        cpu = whole_range([s.cpu_s * 1e3 for s in slopes])
        rows.append([f"{name} {peer_version(name)}", cpu, whole_range([s.rate for s in slopes]), kept])
    ratio = paired([s.cpu_s for s in gpusize], [s.cpu_s for s in found["wrk"]])
    note = (
        f"Answers of {EVENTS} events and the usage, some 2.9 kB in one write, {CONNECTIONS} connections; all clients "
        "on one core, the server on the other. CPU is of the whole tree of processes, as the slope between runs of "
        f"{short} and {long} s (gpusize, wrk: {len(gpusize)} rounds), of {tool_short} and {tool_long} s (the others, "
        f"{ctx.size(TOOL_TURNS, 1)} times; interval: the whole range). gpusize parses and stamps every event and "
        f"records every request; wrk, which sends a GET and parses no event: gpusize takes {ratio} times as much."
    )
    ctx.report.table("streamed answers", ["", "CPU ms/request", "requests/s", "of the long run"], rows, note)


def _bars(ctx: Context, gpusize: list[Slope], costs: dict[str, list[Slope]]) -> None:
    own = bootstrap_median([s.cpu_s * 1e3 for s in gpusize])
    ctx.report.bar(Bar("streamed_cpu_ms_per_request", own, CPU_MS, "ms"))
    ratios: dict[str, Interval] = {}
    for name, slopes in costs.items():
        ratios[name] = over(own, whole_range([s.cpu_s * 1e3 for s in slopes]))
        ctx.report.bar(Bar(f"cpu_per_request_vs_{name}", ratios[name], 1.0))
        rate = over(bootstrap_median([s.rate for s in gpusize]), whole_range([s.rate for s in slopes]))
        ctx.report.bar(Bar(f"requests_per_s_vs_{name}", rate, 1.0, at_least=True))
    if ratios:
        best = max(ratios.values(), key=lambda ratio: ratio.value)
        ctx.report.bar(Bar("streamed_cpu_vs_best_python", best, VS_PYTHON))
