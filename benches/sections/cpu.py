"""CPU microseconds per request and requests/s: wrk and gpusize in alternation, one core each for client and server."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.loads import closed_load
from benches.lib.peers import parse_wrk, require
from benches.lib.procs import BenchFailed, LineServer, pinned, run_measured
from benches.lib.stats import Interval, bootstrap_median, paired
from benches.lib.wire import HeadCatcher, comparable
from tests.servers.nginx import Nginx

__all__ = ["closed", "cpu", "rows_on_disk"]

CONNECTIONS = 64
BOUND = 0.95
NGINX = 'keepalive_requests 1000000000; location / { default_type text/plain; return 200 "Hello, World!"; }'


@dataclass(frozen=True)
class Side:
    """One client's turn."""

    requests: int
    cpu_s: float
    wall_s: float
    user_s: float
    startup_cpu_s: float
    steal: float

    @property
    def cpu_us(self) -> float:
        return self.cpu_s / self.requests * 1e6

    @property
    def user_us(self) -> float:
        return self.user_s / self.requests * 1e6

    @property
    def rate(self) -> float:
        return self.requests / self.wall_s


def cpu(ctx: Context) -> None:
    """Both servers; the bar is on the canned one."""
    _check_same_request(ctx)
    with LineServer([ctx.tools.canned, "--port", "0"], ctx.server_core) as server:
        ratio = _against(ctx, "canned", server.port, ctx.pairs)
    ctx.report.bar(Bar("cpu_per_request_vs_wrk", ratio, BOUND))
    with _nginx(ctx) as nginx:
        _against(ctx, "nginx", nginx.port, min(ctx.pairs, 5))


@contextmanager
def _nginx(ctx: Context) -> Iterator[Nginx]:
    require("nginx", "nginx")
    with Nginx(ctx.fresh_dir("nginx"), NGINX, prefix=pinned([], ctx.server_core)) as server:
        yield server


def _check_same_request(ctx: Context) -> None:
    """Raises BenchFailed unless both clients send the same request: longer ones cost more."""
    wrk_path = require("wrk", "wrk")
    with HeadCatcher() as catcher:
        run_measured([wrk_path, "-t1", "-c1", "-d1", f"http://127.0.0.1:{catcher.port}/"])
        theirs = comparable(catcher.head(), catcher.port)
    with HeadCatcher() as catcher:
        ctx.run_client(
            {"port": catcher.port, "load": closed(1), "stop": {"count": 1}, "dir": str(ctx.fresh_dir("probe"))}
        )
        ours = comparable(catcher.head(), catcher.port)
    if ours != theirs:
        raise BenchFailed(f"the requests differ, so their costs cannot be compared:\nwrk     {theirs}\ngpusize {ours}")


def closed(concurrency: int) -> dict[str, object]:
    """A closed loop without think time that starts at once."""
    return closed_load(concurrency)


def _wrk(ctx: Context, port: int, seconds: int) -> Side:
    command = [require("wrk", "wrk"), "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", f"http://127.0.0.1:{port}/"]
    finished = run_measured(pinned(command, ctx.client_core))
    count = parse_wrk(finished.stdout)
    if count.errors:
        raise BenchFailed(f"wrk saw errors:\n{finished.stdout}")
    return Side(count.requests, finished.cpu_s, count.seconds, finished.user_s, 0.0, finished.steal)


def _gpusize(ctx: Context, port: int, seconds: int) -> Side:
    folder = ctx.fresh_dir("records")
    asked = {"port": port, "load": closed(CONNECTIONS), "stop": {"duration_ns": seconds * 10**9}, "dir": str(folder)}
    finished, outcome = ctx.run_client(asked)
    written = rows_on_disk(folder)
    if not outcome["rows"] == written == outcome["outcomes"]["ok"]:
        raise BenchFailed(f"{outcome['rows']} records, {written} of them on disk, {outcome['outcomes']} requests")
    wall_s = (outcome["end_ns"] - outcome["start_ns"]) / 1e9
    return Side(written, finished.cpu_s, wall_s, finished.user_s, outcome["startup_cpu_s"], finished.steal)


def rows_on_disk(folder: object) -> int:
    """Rows of all Parquet files below a folder."""
    # In a process of its own: Polars in this one would be a neighbour of the next measurement.
    counted = "pl.scan_parquet(sys.argv[1] + '/**/*.parquet').select(pl.len()).collect().item()"
    code = f"import sys, polars as pl; print({counted})"
    return int(run_measured([sys.executable, "-c", code, str(folder)]).stdout)


def _against(ctx: Context, name: str, port: int, pairs: int) -> Interval:
    """The ratio of CPU per request, gpusize to wrk, over alternating pairs; who goes first alternates as well."""
    seconds = ctx.size(8, 1)
    theirs: list[Side] = []
    ours: list[Side] = []
    for pair in range(pairs):
        turns = [(theirs, _wrk), (ours, _gpusize)]
        for kept, turn in turns if pair % 2 == 0 else reversed(turns):
            kept.append(turn(ctx, port, seconds))
        ratio = ours[-1].cpu_us / theirs[-1].cpu_us
        both = f"wrk {theirs[-1].cpu_us:.2f} us, gpusize {ours[-1].cpu_us:.2f} us"
        say(f"{name} pair {pair + 1}/{pairs}: {both}, ratio {ratio:.3f}")
    return _tell(ctx, f"against {name}: {pairs} pairs of {seconds} s, {CONNECTIONS} connections", theirs, ours)


def _tell(ctx: Context, title: str, theirs: list[Side], ours: list[Side]) -> Interval:
    rows = [
        _row("CPU us/request", theirs, ours, lambda side: side.cpu_us),
        _row("of it in user space", theirs, ours, lambda side: side.user_us),
        _row("requests/s", theirs, ours, lambda side: side.rate),
    ]
    startup_us = [side.startup_cpu_s / side.requests * 1e6 for side in ours]
    steal = [side.steal for side in (*theirs, *ours)]
    note = (
        "CPU is of the whole process by wait4, gpusize's with the interpreter's start-up "
        f"({bootstrap_median(startup_us).value:.3f} us of each request) and with every record written as Parquet. "
        f"Steal meanwhile: median {100 * bootstrap_median(steal).value:.2f} %, at most {100 * max(steal):.2f} %."
    )
    ctx.report.table(title, ["", "wrk", "gpusize", "gpusize / wrk, paired"], rows, note)
    return paired([side.cpu_us for side in ours], [side.cpu_us for side in theirs])


def _row(name: str, theirs: list[Side], ours: list[Side], of: Callable[[Side], float]) -> list[object]:
    wrk_values, our_values = [of(side) for side in theirs], [of(side) for side in ours]
    return [name, bootstrap_median(wrk_values), bootstrap_median(our_values), paired(our_values, wrk_values)]
