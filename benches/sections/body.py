"""User instructions per request at 4 MB against 4 kB: a large body must be sent and read without being handled."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.procs import BenchFailed, LineServer, pinned, run_measured
from benches.lib.stats import Interval
from benches.sections.cpu import closed
from benches.sections.instructions import callgrind, collected, slope

__all__ = ["body"]

SMALL, LARGE = 4_000, 4_000_000
BOUND = 2.0
CONNECTIONS = 4


def body(ctx: Context) -> None:
    """Request bodies, then response bodies; plain text."""
    repeats = ctx.size(3, 1)
    small_counts = (ctx.size(10_000, 500), ctx.size(30_000, 1_500))
    # Enough that what a level costs once, such as more buckets in its histograms, falls out of the slope here, too.
    large_counts = (ctx.size(1_000, 20), ctx.size(3_000, 60))
    rows = []
    for name, measure in (("request", _sent), ("response", _received)):
        small = [measure(ctx, SMALL, small_counts) for _ in range(repeats)]
        large = [measure(ctx, LARGE, large_counts) for _ in range(repeats)]
        ratios = [b / a for a, b in zip(small, large, strict=True)]
        rows.append([f"{name} body", _spread(small), _spread(large), _spread(ratios)])
        ctx.report.bar(Bar(f"instructions_{name}_4mb_over_4kb", _spread(ratios), BOUND))
    note = f"Callgrind slopes over {CONNECTIONS} connections, {repeats} times; the interval is the whole range."
    ctx.report.table("user instructions per request", ["", "at 4 kB", "at 4 MB", "ratio"], rows, note)


def _spread(values: Sequence[float]) -> Interval:
    return Interval(sorted(values)[len(values) // 2], min(values), max(values))


def _sent(ctx: Context, size: int, counts: tuple[int, int]) -> float:
    more = {"target": {"method": "POST"}, "segments": [{"field": 0}], "body_bytes": size}
    return _slope(ctx, [], more, counts)


def _received(ctx: Context, size: int, counts: tuple[int, int]) -> float:
    return _slope(ctx, ["--body-bytes", str(size)], {}, counts)


def _slope(ctx: Context, options: list[str], more: dict[str, object], counts: tuple[int, int]) -> float:
    with LineServer([ctx.tools.canned, "--port", "0", *options], ctx.server_core) as server:
        low, high = (_instructions(ctx, server.port, count, more) for count in counts)
    return slope(low, high)


def _instructions(ctx: Context, port: int, count: int, more: dict[str, object]) -> tuple[int, int]:
    asked = {
        "port": port,
        "load": closed(CONNECTIONS),
        "stop": {"count": count},
        "dir": str(ctx.fresh_dir("records")),
        **more,
    }
    command = [*callgrind(ctx), sys.executable, "-m", "benches.client", json.dumps(asked)]
    finished = run_measured(pinned(command, ctx.client_core), timeout_s=1200)
    outcome = json.loads(finished.stdout)
    if outcome["outcomes"] != {"ok": count}:
        raise BenchFailed(f"under callgrind {count} requests ended as {outcome['outcomes']}: {outcome['errors']}")
    say(f"callgrind: {count} requests: {collected(finished.stderr)} instructions")
    return count, collected(finished.stderr)
