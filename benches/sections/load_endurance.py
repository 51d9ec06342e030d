"""Ten million requests in one level, and ten thousand open connections."""

from __future__ import annotations

from benches.lib.bars import Bar
from benches.lib.context import Context
from benches.lib.endurance import endure
from benches.lib.loads import closed_load
from benches.lib.procs import BenchFailed, LineServer
from benches.lib.stats import Interval

__all__ = ["endurance"]

REQUESTS = 10_000_000
RSS_BYTES_PER_REQUEST = 0.5
"""A record alone takes some 250 bytes in memory: what grew with the requests would show a hundredfold.

It lets pass what does not: the seconds that are kept for whoever watches, some 2 MB over the first 600 s.
"""
RSS_QUICK = 250.0
"""In a few seconds the buffers of the first part are still being filled; records that stayed would show even so."""
CONNECTIONS = 10_000


def endurance(ctx: Context) -> None:
    """Resident memory must not grow with the number of requests, and many connections must be no fault."""
    _many_requests(ctx)
    _many_connections(ctx)


def _many_requests(ctx: Context) -> None:
    run = endure(ctx, ctx.size(REQUESTS, 400_000), 900)
    rows: list[list[object]] = []
    for k in (0, 4, 9):
        rss_bytes, cpu_s = run.tenth(k)
        rows.append([f"tenth {k + 1}", f"{rss_bytes / 2**20:.1f}", f"{cpu_s * 1e6:.2f}"])
    slope = Interval(*run.rss_per_request())
    title = f"{int(run.done[-1])} requests in one level"
    ctx.report.table(title, ["", "resident MiB", "CPU us/request"], rows, "Every request has its record on disk.")
    ctx.report.bar(Bar("rss_bytes_per_request", slope, RSS_QUICK if ctx.quick else RSS_BYTES_PER_REQUEST, "B"))


def _many_connections(ctx: Context) -> None:
    connections = ctx.size(CONNECTIONS, 1_000)
    with LineServer([ctx.tools.canned, "--port", "0"], ctx.server_core) as server:
        asked = {
            "port": server.port,
            "load": closed_load(connections),
            "stop": {"count": 40 * connections},
            "dir": str(ctx.fresh_dir("records")),
        }
        finished, outcome = ctx.run_client(asked)
    if outcome["connects"] < connections:
        raise BenchFailed(f"{outcome['connects']} connections were opened, not {connections}")
    cpu_us = (finished.cpu_s - outcome["startup_cpu_s"]) / outcome["rows"] * 1e6
    rows = [[connections, outcome["rows"], f"{cpu_us:.2f}", f"{outcome['vm_hwm_bytes'] / 2**20:.0f}"]]
    ctx.report.table("open connections", ["", "requests, all ok", "CPU us/request", "peak MiB"], rows, "")
    ctx.report.bar(Bar("reconnects_at_10000_connections", Interval.exact(outcome["reconnects"]), 0))
