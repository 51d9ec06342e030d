"""How late the generator is by its own doing, beside a bare timerfd loop on the same core."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.host import CpuTimes
from benches.lib.loads import open_load
from benches.lib.procs import BenchFailed, LineServer, pinned, run_measured
from benches.lib.stats import bootstrap_median, paired

__all__ = ["Lateness", "lateness_at", "lateness_bars"]

P50_MARGIN_NS = 25_000.0
P99_FLOOR_NS = 1_000_000.0

# In a process of its own, so that Polars is no neighbour of the next measurement.
_LATENESS = """
import json, sys, polars as pl
rows = pl.scan_parquet(sys.argv[1] + '/**/*.parquet').select(
    sent=pl.col('sent_ns') - pl.col('due_ns'), fired=pl.col('fired_ns') - pl.col('due_ns')).collect()
found = {f'{name}_p{int(q * 100)}': rows[name].quantile(q, 'linear') for name in rows.columns for q in (0.5, 0.99)}
print(json.dumps({'rows': rows.height, **found}))
"""


@dataclass(frozen=True)
class Lateness:
    """Quantiles of one turn, in nanoseconds."""

    p50_ns: float
    p99_ns: float
    fired_p50_ns: float


def lateness_at(ctx: Context, rate: float, seconds: int) -> tuple[list[Lateness], list[Lateness]]:
    """Alternating turns of the bare loop and of the engine at ``rate``, and their table; the pairs of turns."""
    ours: list[Lateness] = []
    bare: list[Lateness] = []
    before = CpuTimes.now()
    with LineServer([ctx.tools.canned, "--port", "0"], ctx.server_core) as server:
        for pair in range(ctx.pairs):
            turns = [
                lambda: bare.append(_bare(ctx, rate, seconds)),
                lambda: ours.append(_engine(ctx, server.port, rate, seconds)),
            ]
            for turn in turns if pair % 2 == 0 else reversed(turns):
                turn()
            say(f"{rate:.0f}/s, pair {pair + 1}/{ctx.pairs}: bare {_show(bare[-1])}, gpusize {_show(ours[-1])}")
    steal = CpuTimes.now().steal_share(before)
    names = {
        "p50": lambda x: x.p50_ns / 1e3,
        "p99": lambda x: x.p99_ns / 1e3,
        "p50 of the pacer alone": lambda x: x.fired_p50_ns / 1e3,
    }
    rows = [
        [n, bootstrap_median([of(x) for x in bare]), bootstrap_median([of(x) for x in ours])] for n, of in names.items()
    ]
    title = f"open loop, {rate:.0f}/s for {seconds} s, {ctx.pairs} pairs"
    ctx.report.table(
        title, ["lateness, us", "bare timerfd loop", "gpusize"], rows, f"Steal meanwhile: {100 * steal:.2f} %."
    )
    return bare, ours


def lateness_bars(ctx: Context, name: str, bare: Sequence[Lateness], ours: Sequence[Lateness]) -> None:
    """p50 at most 25 us over the loop's; p99 at most the larger of 1 ms and twice the loop's."""
    excess = paired([x.p50_ns for x in ours], [x.p50_ns for x in bare], lambda a, b: a - b)
    ctx.report.bar(Bar(f"{name}_p50_over_timerfd_ns", excess, P50_MARGIN_NS, "ns"))
    allowed = [max(P99_FLOOR_NS, 2 * x.p99_ns) for x in bare]
    ctx.report.bar(Bar(f"{name}_p99_share_of_allowed", paired([x.p99_ns for x in ours], allowed), 1.0))


def _show(lateness: Lateness) -> str:
    return f"p50 {lateness.p50_ns / 1e3:.0f} us, p99 {lateness.p99_ns / 1e3:.0f} us"


def _bare(ctx: Context, rate: float, seconds: int) -> Lateness:
    command = [ctx.tools.timerfd_loop, "--rate", str(rate), "--seconds", str(seconds)]
    said = json.loads(run_measured(pinned(command, ctx.client_core)).stdout)
    return Lateness(said["p50_ns"], said["p99_ns"], said["p50_ns"])


def _engine(ctx: Context, port: int, rate: float, seconds: int) -> Lateness:
    folder: Path = ctx.fresh_dir("records")
    asked = {"port": port, "load": open_load(rate), "stop": {"count": int(rate * seconds)}, "dir": str(folder)}
    _, outcome = ctx.run_client(asked)
    said = json.loads(run_measured([sys.executable, "-c", _LATENESS, str(folder)]).stdout)
    if said["rows"] != outcome["rows"]:
        raise BenchFailed(f"{outcome['rows']} records, {said['rows']} of them on disk")
    return Lateness(said["sent_p50"], said["sent_p99"], said["fired_p50"])
