"""Ten million requests in one level, and ten thousand open connections."""

from __future__ import annotations

from benches.lib.bars import Bar
from benches.lib.context import Context
from benches.lib.endurance import HEADER, endure
from benches.lib.loads import closed_load
from benches.lib.procs import BenchFailed, LineServer
from benches.lib.stats import Interval

__all__ = ["endurance"]

REQUESTS = 20_000_000
"""Twice the ten millions that the bar is about: a slope's interval narrows faster than the run grows."""
RSS_BYTES_PER_REQUEST = 0.5
"""A record alone takes some 250 bytes in memory: what grew with the requests would show a hundredfold.

It lets pass what does not: the seconds that are kept for whoever watches, half a MiB at most.
"""
RSS_QUICK = 250.0
"""In a few seconds the buffers of the first part are still being filled; records that stayed would show even so."""
CONNECTIONS = 10_000


def endurance(ctx: Context) -> None:
    """Resident memory must not grow with the number of requests, and many connections must be no fault."""
    _many_requests(ctx)
    _many_connections(ctx)


def _many_requests(ctx: Context) -> None:
    run = endure(ctx, ctx.size(REQUESTS, 1_000_000), 1800)
    title = f"{int(run.done[-1])} requests in one level"
    rows = [run.tenth(k).row(f"tenth {k + 1}") for k in (0, 1, 4, 9)]
    ctx.report.table(title, HEADER, rows, "Every request has its record on disk.")
    bound = RSS_QUICK if ctx.quick else RSS_BYTES_PER_REQUEST
    ctx.report.bar(Bar("rss_bytes_per_request", run.floor_per_request(), bound, "B"))


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
