"""User instructions per request by callgrind: the slope between two request counts, so that start-up falls out."""

from __future__ import annotations

import json
import re
import sys

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.peers import parse_wrk, require
from benches.lib.procs import BenchFailed, LineServer, pinned, run_measured
from benches.lib.stats import Interval
from benches.sections.cpu import CONNECTIONS, closed

__all__ = ["callgrind", "collected", "instructions", "slope"]

BOUND = 3600.0
_COLLECTED = re.compile(r"Collected\s*:\s*(\d+)")


def instructions(ctx: Context) -> None:
    """gpusize as a whole process, Python and the writer of Parquet included; wrk beside it."""
    repeats = ctx.size(3, 1)
    low, high = ctx.size(100_000, 1_000), ctx.size(300_000, 3_000)
    wrk_seconds = (ctx.size(2, 1), ctx.size(6, 2))
    with LineServer([ctx.tools.canned, "--port", "0"], ctx.server_core) as server:
        ours = [slope(_gpusize(ctx, server.port, low), _gpusize(ctx, server.port, high)) for _ in range(repeats)]
        theirs = [slope(*(_wrk(ctx, server.port, seconds) for seconds in wrk_seconds)) for _ in range(repeats)]
    rows = [["gpusize", _spread(ours)], ["wrk", _spread(theirs)]]
    points = f"{low} and {high} requests (wrk: {wrk_seconds[0]} s and {wrk_seconds[1]} s)"
    note = f"Slope between {points}, {repeats} times; the interval is the whole range."
    ctx.report.table("user instructions per request, callgrind", ["", "instructions"], rows, note)
    ctx.report.bar(Bar("instructions_per_request", _spread(ours), BOUND))


def slope(low: tuple[int, int], high: tuple[int, int]) -> float:
    """Instructions per request between two points of (requests, instructions)."""
    if high[0] <= low[0]:
        raise BenchFailed(f"a slope needs more requests at its upper end than {low[0]}, not {high[0]}")
    return (high[1] - low[1]) / (high[0] - low[0])


def collected(text: str) -> int:
    """Callgrind's count from its last words; raises BenchFailed when there is none."""
    found = _COLLECTED.search(text)
    if found is None:
        raise BenchFailed(f"callgrind printed no count:\n{text[-500:]}")
    return int(found[1])


def _spread(values: list[float]) -> Interval:
    return Interval(sorted(values)[len(values) // 2], min(values), max(values))


def callgrind(ctx: Context) -> list[str]:
    """The command that counts the instructions of what follows it."""
    return [
        require("valgrind", "valgrind"),
        "--tool=callgrind",
        f"--callgrind-out-file={ctx.scratch / 'callgrind.out'}",
    ]


def _gpusize(ctx: Context, port: int, count: int) -> tuple[int, int]:
    folder = ctx.fresh_dir("records")
    asked = {"port": port, "load": closed(CONNECTIONS), "stop": {"count": count}, "dir": str(folder)}
    command = [*callgrind(ctx), sys.executable, "-m", "benches.client", json.dumps(asked)]
    finished = run_measured(pinned(command, ctx.client_core), timeout_s=1200)
    outcome = json.loads(finished.stdout)
    if outcome["outcomes"] != {"ok": count}:
        raise BenchFailed(f"under callgrind {count} requests ended as {outcome['outcomes']}: {outcome['errors']}")
    say(f"callgrind: gpusize, {count} requests: {collected(finished.stderr)} instructions")
    return count, collected(finished.stderr)


def _wrk(ctx: Context, port: int, seconds: int) -> tuple[int, int]:
    command = [
        *callgrind(ctx),
        require("wrk", "wrk"),
        "-t1",
        f"-c{CONNECTIONS}",
        f"-d{seconds}",
        f"http://127.0.0.1:{port}/",
    ]
    finished = run_measured(pinned(command, ctx.client_core), timeout_s=1200)
    requests = parse_wrk(finished.stdout).requests
    say(f"callgrind: wrk, {requests} requests: {collected(finished.stderr)} instructions")
    return requests, collected(finished.stderr)
