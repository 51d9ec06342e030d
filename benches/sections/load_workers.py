"""What a second worker costs: CPU per request of two workers over that of one, over the same 64 connections."""

from __future__ import annotations

from functools import partial
from typing import Any

from benches.lib.bars import Bar
from benches.lib.context import Context
from benches.lib.loads import closed_load, open_load
from benches.lib.procs import BenchFailed, LineServer
from benches.lib.stats import bootstrap_median, paired
from benches.lib.turns import Turn, alternate, cpu_rows, steal_note

__all__ = ["workers"]

CONNECTIONS = 64
RATE = 20_000
SECONDS = 1
BOUND = 1.1
REPORTED = 5


def workers(ctx: Context) -> None:
    """Open and closed loop at one rate; a closed loop as fast as it can is reported only, as its rate changes."""
    # Users that begin at once would go on in step, and one wake-up would serve many of them.
    paced_ns = round(CONNECTIONS / RATE * 1e9)
    pause = {"think_ns": paced_ns, "stagger_ns": paced_ns}
    loads = (
        ("workers_open", f"open loop, {RATE}/s", open_load(RATE, connections=CONNECTIONS)),
        ("workers_closed", f"{CONNECTIONS} users, some {RATE}/s", closed_load(CONNECTIONS, "staggered", **pause)),
        ("", f"{CONNECTIONS} users without pauses", closed_load(CONNECTIONS)),
    )
    rows: list[list[object]] = []
    turns: list[Turn] = []
    bars: list[Bar] = []
    with LineServer([ctx.tools.canned, "--port", "0"], ctx.server_core) as server:
        for name, title, load in loads:
            one, two = alternate(
                ctx.pairs if name else min(ctx.pairs, REPORTED),
                partial(_turn, ctx, server.port, load, 1),
                partial(_turn, ctx, server.port, load, 2),
                lambda a, b: f"{a.cpu_us:.2f} us with one, {b.cpu_us:.2f} us with two",
            )
            rows += cpu_rows(title, one, two)
            sleeps = [[turn.sleeps_each for turn in side] for side in (one, two)]
            rows.append([f"{title}, sleeps/request", *map(bootstrap_median, sleeps), paired(sleeps[1], sleeps[0])])
            turns += [*one, *two]
            ratio = paired([turn.cpu_us for turn in two], [turn.cpu_us for turn in one])
            if name:
                bars.append(Bar(f"{name}_cpu_two_over_one", ratio, BOUND))
    note = (
        f"{ctx.pairs} alternating pairs of {SECONDS} s (without pauses: {min(ctx.pairs, REPORTED)}). The server keeps "
        "to one core, the client may use both. CPU is of the process with the writing of its records and without its "
        "start-up, which would hide the difference. A thread sleeps when it has read and sent all that there was: the "
        f"more often for the same requests, the less it finds at each waking. {steal_note(turns)}"
    )
    ctx.report.table("workers", ["", "one worker", "two workers", "two / one, paired"], rows, note)
    for bar in bars:
        ctx.report.bar(bar)


def _turn(ctx: Context, port: int, load: dict[str, Any], count: int) -> Turn:
    stop = {"count": RATE * SECONDS} if "open" in load else {"duration_ns": SECONDS * 10**9}
    asked = {"port": port, "load": load, "stop": stop, "dir": str(ctx.fresh_dir("records")), "workers": count}
    finished, outcome = ctx.run_client(asked, anywhere=True)
    requests = outcome["outcomes"]["ok"]
    if outcome["rows"] != requests:
        raise BenchFailed(f"{outcome['rows']} records of {requests} requests")
    wall_s = (outcome["end_ns"] - outcome["start_ns"]) / 1e9
    sleeps = finished.sleeps - outcome["startup_sleeps"]
    return Turn(requests, finished.cpu_s - outcome["startup_cpu_s"], wall_s, finished.steal, sleeps=sleeps)
