"""CPU per request and requests/s beside the field's HTTP generators, one core for the client and one for the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from benches.lib.bars import Bar
from benches.lib.context import Context
from benches.lib.generators import FAST, LOCUST, Generator, Taken, take, version
from benches.lib.loads import closed_load
from benches.lib.procs import BenchFailed, LineServer
from benches.lib.rounds import present, rotate, tell_missing
from benches.lib.slopes import Slope, over, slope
from benches.lib.stats import bootstrap_median, paired
from benches.lib.turns import whole_range
from benches.sections.cpu import rows_on_disk

__all__ = ["ours", "throughput"]

CONNECTIONS = 64
SECONDS, SECONDS_QUICK = 4, 1
PEER_SECONDS = 2
LOCUST_SECONDS = (3, 9)
LOCUST_TURNS = 2
EMPTY: Mapping[str, Any] = MappingProxyType({})
BUSY = 0.95
"""Who uses more than this share of a core is what limits the rate."""


def throughput(ctx: Context) -> None:
    """A bar on CPU per request and one on requests/s for each generator that is here."""
    server = [ctx.tools.canned, "--port", "0"]
    peers, missing = present({each.name: each for each in FAST}, lambda each: each.program())
    seconds = ctx.size(SECONDS, SECONDS_QUICK)
    turns = {name: (lambda each=each: take(ctx, each, PEER_SECONDS, server)) for name, each in peers.items()}
    found = rotate(
        ctx.pairs, {**turns, "gpusize": lambda: ours(ctx, seconds, server)}, lambda turn: f"{turn.cpu_us:.2f} us"
    )
    _tell(ctx, [peers[name] for name in peers], found)
    for name in peers:
        cpu = paired([t.cpu_us for t in found["gpusize"]], [t.cpu_us for t in found[name]])
        rate = paired([t.rate for t in found["gpusize"]], [t.rate for t in found[name]])
        ctx.report.bar(Bar(f"cpu_per_request_vs_{name}", cpu, 1.0))
        ctx.report.bar(Bar(f"requests_per_s_vs_{name}", rate, 1.0, at_least=True))
    try:
        LOCUST.program()
    except BenchFailed as error:
        missing["locust"] = str(error)
    else:
        _locust(ctx, server, found["gpusize"])
    tell_missing(ctx, missing)


def ours(ctx: Context, seconds: int, server: Sequence[str], asked: Mapping[str, Any] = EMPTY) -> Taken:
    """A turn of gpusize; every request must be ok, answered by the server, and in a Parquet file."""
    folder = ctx.fresh_dir("records")
    stop = {"duration_ns": seconds * 10**9}
    with LineServer(server, ctx.server_core) as running:
        told = {"port": running.port, "load": closed_load(CONNECTIONS), "stop": stop, "dir": str(folder)}
        finished, outcome = ctx.run_client({**asked, **told})
        busy_s, served = running.cpu_s(), running.stop()
    requests, written = outcome["outcomes"]["ok"], rows_on_disk(folder)
    if not outcome["rows"] == written == requests == served["requests"]:
        raise BenchFailed(f"{requests} requests, {written} records on disk, the server answered {served['requests']}")
    wall_s = (outcome["end_ns"] - outcome["start_ns"]) / 1e9
    share, startup_s = busy_s / wall_s, outcome["startup_cpu_s"]
    return Taken(requests, wall_s, finished.cpu_s, finished.steal, served["connections"], share, startup_s)


def limit(turns: Sequence[Taken]) -> str:
    """What kept these turns from more requests/s."""
    server = bootstrap_median([turn.server_share for turn in turns]).value
    client = bootstrap_median([turn.cpu_s / turn.wall_s for turn in turns]).value
    full = [name for name, share in (("server", server), ("client", client)) if share >= BUSY]
    return f"{' and '.join(full) or 'neither'}: client {100 * client:.0f} %, server {100 * server:.0f} %"


def _tell(ctx: Context, peers: Sequence[Generator], found: dict[str, list[Taken]]) -> None:
    mine = found["gpusize"]
    rows: list[list[object]] = [
        [
            version(each),
            bootstrap_median([t.cpu_us for t in found[each.name]]),
            paired([t.cpu_us for t in mine], [t.cpu_us for t in found[each.name]]),
            bootstrap_median([t.rate for t in found[each.name]]),
            paired([t.rate for t in mine], [t.rate for t in found[each.name]]),
            limit(found[each.name]),
        ]
        for each in peers
    ]
    rows.append(
        [
            "gpusize",
            bootstrap_median([t.cpu_us for t in mine]),
            "",
            bootstrap_median([t.rate for t in mine]),
            "",
            limit(mine),
        ]
    )
    steal = [turn.steal for turns in found.values() for turn in turns]
    startup_us = bootstrap_median([turn.startup_cpu_s / turn.requests * 1e6 for turn in mine]).value
    note = (
        f"{len(mine)} rounds of {ctx.size(SECONDS, SECONDS_QUICK)} s of gpusize and {PEER_SECONDS} s of each other, "
        f"{CONNECTIONS} keep-alive connections, client and server on a core each. CPU is of the whole process by "
        f"wait4; gpusize's has the interpreter's start-up ({startup_us:.3f} us) and every request written to Parquet. "
        "Each count of requests was held against the server's. Shares are CPU time over the time of load, the client's "
        f"with its start-up. Steal meanwhile: median {100 * bootstrap_median(steal).value:.2f} %, "
        f"at most {100 * max(steal):.2f} %."
    )
    header = ["", "CPU us/request", "gpusize's, paired", "requests/s", "gpusize's, paired", "limited by"]
    ctx.report.table(f"GET over {CONNECTIONS} connections, one core", header, rows, note)


def _locust(ctx: Context, server: Sequence[str], mine: Sequence[Taken]) -> None:
    """Two lengths in turn: start-up is as much as its requests, and would pass for their cost."""
    lengths = (1, 3) if ctx.quick else LOCUST_SECONDS
    turns = ctx.size(LOCUST_TURNS, 1)
    slopes: list[Slope] = []
    for _ in range(turns):
        short, long = (take(ctx, LOCUST, seconds, server) for seconds in lengths)
        slopes.append(slope(short.requests, short.cpu_s, long.requests, long.cpu_s, long.rate))
    cpu = whole_range([each.cpu_s * 1e6 for each in slopes])
    rate = whole_range([each.rate for each in slopes])
    own_cpu, own_rate = bootstrap_median([t.cpu_us for t in mine]), bootstrap_median([t.rate for t in mine])
    rows = [[version(LOCUST), cpu, rate], ["gpusize, from the rounds above", own_cpu, own_rate]]
    note = (
        f"{turns} times {lengths[0]} s and {lengths[1]} s: CPU per request is the slope between the two, which leaves "
        "locust's start-up out and not gpusize's. Interval of locust: the whole range."
    )
    ctx.report.table("locust, FastHttpUser", ["", "CPU us/request", "requests/s"], rows, note)
    ctx.report.bar(Bar("cpu_per_request_vs_locust", over(own_cpu, cpu), 1.0))
    ctx.report.bar(Bar("requests_per_s_vs_locust", over(own_rate, rate), 1.0, at_least=True))
