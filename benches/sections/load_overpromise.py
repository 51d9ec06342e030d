"""What the field's LLM generators report at a rate that they cannot keep, beside gpusize at the same rate."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.llm_tools import TOOLS, Reported, take_llm
from benches.lib.loads import open_load
from benches.lib.peers import peer_program, peer_version
from benches.lib.procs import LineServer, run_measured
from benches.lib.rounds import present, tell_missing
from benches.lib.stats import plain
from benches.lib.turns import whole_range
from benches.sections.load_streamed import EVENTS, chat

__all__ = ["overpromise"]

RATES = (400, 1_000)
SECONDS, SECONDS_QUICK = 6, 4
RATE_ERROR = 0.01
LATENESS_MS = 1.0
ROUNDS = 3

# In a process of its own, so that Polars is no neighbour of the next measurement.
_FIGURES = """
import json, sys, polars as pl
rows = pl.read_parquet(sys.argv[1] + '/**/*.parquet')
spread_s = (rows['sent_ns'].max() - rows['sent_ns'].min()) / 1e9
of = lambda end, start, q: (rows[end] - rows[start]).quantile(q, 'linear') / 1e9
print(json.dumps({
    'rows': rows.height, 'rate': (rows.height - 1) / spread_s, 'late_p99_s': of('sent_ns', 'due_ns', 0.99),
    'latency_p99_s': of('end_ns', 'due_ns', 0.99), 'ttft_p50_s': of('first_token_ns', 'due_ns', 0.5),
    'ttft_p99_s': of('first_token_ns', 'due_ns', 0.99)}))
"""


@dataclass(frozen=True)
class Ours:
    """A run of gpusize, from its records; latencies are from the due time."""

    rows: int
    rate: float
    late_p99_s: float
    latency_p99_s: float
    ttft_p50_s: float
    ttft_p99_s: float


def overpromise(ctx: Context) -> None:
    """A table; the bars are gpusize's own, at the highest rate."""
    server = [ctx.tools.canned, "--port", "0", "--sse-events", str(EVENTS)]
    tools, missing = present(TOOLS, lambda tool: peer_program(tool.name))
    seconds = ctx.size(SECONDS, SECONDS_QUICK)
    rows: list[list[object]] = []
    ours: list[Ours] = []
    for rate in RATES:
        ours = [_ours(ctx, rate, seconds, server) for _ in range(ctx.size(ROUNDS, 1) if rate == RATES[-1] else 1)]
        rows.append(_own_row(rate, ours))
        for name, tool in tools.items():
            said = take_llm(ctx, tool, ("constant", rate), seconds, server, anywhere=True)
            say(f"{name} at {rate}/s: {said}")
            rows.append(_row(rate, f"{name} {peer_version(name)}", said, seconds))
    header = [
        "asked for",
        "",
        "sent/s",
        "says it sent/s",
        "p99 ms",
        "TTFT p50 ms",
        "TTFT p99 ms",
        "since the schedule, p99 ms",
    ]
    note = (
        f"Constant rate for {seconds} s, streams of {EVENTS} events; clients may use both cores, the server has one. "
        "The server alone takes well below 1 ms. sent/s of the others: what the server answered, over the time asked "
        "for. p99 and TTFT are the figures that each tool puts first; gpusize's count from the due time, of its middle "
        "run."
    )
    ctx.report.table("asked for more than can be sent", header, rows, note)
    tell_missing(ctx, missing)
    errors = [abs(run.rate / RATES[-1] - 1) for run in ours]
    late_ms = [run.late_p99_s * 1e3 for run in ours]
    ctx.report.bar(Bar(f"sent_rate_error_at_{RATES[-1]}", whole_range(errors), RATE_ERROR))
    ctx.report.bar(Bar(f"lateness_p99_ms_at_{RATES[-1]}", whole_range(late_ms), LATENESS_MS, "ms"))


def _ours(ctx: Context, rate: int, seconds: int, server: Sequence[str]) -> Ours:
    folder: Path = ctx.fresh_dir("records")
    with LineServer(server, ctx.server_core) as running:
        load = {"load": open_load(rate, connections=64), "stop": {"count": rate * seconds}, "dir": str(folder)}
        ctx.run_client({**chat(), **load, "port": running.port}, anywhere=True)
    return Ours(**json.loads(run_measured([sys.executable, "-c", _FIGURES, str(folder)]).stdout))


def _own_row(rate: int, runs: Sequence[Ours]) -> list[object]:
    run = sorted(runs, key=lambda run: run.latency_p99_s)[len(runs) // 2]
    times = [plain(1e3 * each) for each in (run.latency_p99_s, run.ttft_p50_s, run.ttft_p99_s, run.latency_p99_s)]
    return [f"{rate}/s", "gpusize", plain(run.rate), plain(run.rate), *times]


def _row(rate: int, name: str, said: Reported, seconds: int) -> list[object]:
    times = [plain(1e3 * each) for each in (said.latency_p99_s, said.ttft_p50_s, said.ttft_p99_s)]
    since = "not told" if said.schedule_p99_s is None else plain(1e3 * said.schedule_p99_s)
    return [f"{rate}/s", name, plain(said.served / seconds), plain(said.rate), *times, since]
