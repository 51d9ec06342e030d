"""Coordinated omission: who tells the truth about a server that freezes for 2 s in a run of 20 s at 1,000/s.

Due times lie evenly over the run of S = 20 s. A request that is due x seconds into the freeze of F = 2 s is answered
when the freeze ends, F - x after it was due; what has piled up by then is answered within milliseconds. All other
requests take well below one. So the share of requests with a response time of more than y is (F - y) / S, and p99 is
where that is 0.01: y = F - 0.01 S = 1.8 s.

A generator that takes the time when it has got a connection, sends 64 requests into the freeze and counts the others
from after it: 64 of 20,000 do not reach p99. oha's option and wrk mend that afterwards: oha counts from the times that
it had planned, wrk, which has no plan, fills in what it would have sent at its mean rate.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.frozen import GPUSIZE, OTHERS, WRK, Told, Tool
from benches.lib.host import CpuTimes
from benches.lib.procs import BenchFailed, LineServer, pinned, run_measured
from benches.lib.rounds import present, tell_missing
from benches.lib.stats import plain
from benches.lib.turns import whole_range

__all__ = ["omission", "p99_s"]

SECONDS, FREEZE_AT_S, FREEZE_S = 20, 9.0, 2.0
SECONDS_QUICK, FREEZE_AT_QUICK_S, FREEZE_QUICK_S = 5, 2.0, 0.5
RUNS = 3
BOUND = 0.05


def p99_s(seconds: float, freeze_s: float) -> float:
    """The 99th percentile of the response times from the due time: see above."""
    return freeze_s - 0.01 * seconds


def omission(ctx: Context) -> None:
    """All that keep a rate run at once, each on a server of its own, as 1,000/s is little; then wrk."""
    tools, missing = present({tool.name: tool for tool in (*OTHERS, WRK)}, lambda tool: tool.program())
    before = CpuTimes.now()
    together = [GPUSIZE] * ctx.size(RUNS, 1) + [tool for tool in tools.values() if tool is not WRK]
    with ThreadPoolExecutor(len(together)) as pool:
        told = list(pool.map(lambda each: _run(ctx, each[1], each[0]), enumerate(together)))
    if WRK.name in tools:
        together.append(WRK)
        told.append(_run(ctx, WRK, len(together)))
    truth, steal = p99_s(*_shape(ctx)), CpuTimes.now().steal_share(before)
    ours = [said for tool, said in zip(together, told, strict=True) if tool is GPUSIZE]
    rows = [[tool.name, *_cells(said, truth)] for tool, said in zip(together, told, strict=True)]
    note = (
        f"The server freezes for {plain(_shape(ctx)[1])} s in a run of {plain(_shape(ctx)[0])} s; 64 connections, all "
        f"but wrk told 1,000/s. By the due times p99 is {plain(truth)} s. Steal: {100 * steal:.2f} %."
    )
    header = ["", "requests reported", "p99 reported, s", "of the true one", "longest, s"]
    ctx.report.table("a server that freezes", header, rows, note)
    tell_missing(ctx, missing)
    errors = [abs(said.p99_s / truth - 1) for said in ours]
    ctx.report.bar(Bar("omission_p99_error", whole_range(errors), BOUND))


def _shape(ctx: Context) -> tuple[float, float]:
    """Seconds of the run and of the freeze."""
    return (SECONDS_QUICK, FREEZE_QUICK_S) if ctx.quick else (SECONDS, FREEZE_S)


def _run(ctx: Context, tool: Tool, number: int) -> Told:
    seconds, freeze_s = _shape(ctx)
    at_s = FREEZE_AT_QUICK_S if ctx.quick else FREEZE_AT_S
    folder = ctx.fresh_dir(f"frozen-{number}")
    command = [ctx.tools.canned, "--port", "0", "--stall-at-s", str(at_s), "--stall-for-s", str(freeze_s)]
    with LineServer(command, ctx.server_core) as server:
        words = tool.command(ctx, server.port, int(seconds), folder)
        finished = run_measured(pinned(words, ctx.client_core), timeout_s=10 * seconds)
        served = server.stop()
    if "stall_start_ns" not in served:
        raise BenchFailed(f"{tool.name}: the server did not freeze: {served}")
    said = tool.read(finished.stdout, folder)
    say(f"{tool.name}: {said}; the server answered {served['requests']}")
    return said


def _cells(said: Told, truth_s: float) -> list[object]:
    longest = "not told" if said.longest_s is None else plain(said.longest_s)
    return [said.requests, plain(said.p99_s), f"{100 * said.p99_s / truth_s:.1f} %", longest]
