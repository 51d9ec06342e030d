"""Client truth: our stamp of each event against the server's, taken when its write had returned, at 2,000 streams."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl

from benches.lib.bars import Bar
from benches.lib.context import Context
from benches.lib.loads import closed_load
from benches.lib.procs import BenchFailed, LineServer
from benches.lib.stats import Interval
from benches.sections.sse import OPENAI_RESPONSE

__all__ = ["differences_ns", "real_time", "server_stamps", "truth"]

STREAMS = 2_000
TOKENS_PER_S = 20
P99_MS = 2.0


def truth(ctx: Context) -> None:
    """Several rounds, each with a server and a client of its own; the bar is on the worst round."""
    with real_time() as alone:
        rounds = [_round(ctx) for _ in range(ctx.size(5, 1))]
    p50, p99, worst = (np.array(column) for column in zip(*((r[0], r[1], r[2]) for r in rounds), strict=True))
    rows = [
        [name, Interval(float(np.median(values)), float(values.min()), float(values.max()))]
        for name, values in (("p50 ms", p50), ("p99 ms", p99), ("max ms", worst))
    ]
    events = sum(r[3] for r in rounds)
    note = (
        f"{STREAMS} streams of {TOKENS_PER_S} tokens/s, {events} events in {len(rounds)} rounds; value: the median "
        "round, interval: the whole range. Server and client have a core each; the difference holds the kernel's "
        "loopback, the wake-up of the client and its turn in the client's loop. "
        + ("Both run with real-time priority, before" if alone else "Both share the cores with")
        + " whatever else this machine does; in the worst round the client's worker was ready and had no core for "
        f"{1e3 * max(r[4] for r in rounds):.0f} ms, and steal was at most {100 * max(r[5] for r in rounds):.2f} %."
    )
    ctx.report.table("our stamp - the server's stamp after its write", ["", "over rounds"], rows, note)
    ctx.report.bar(Bar("stream_stamp_p99_ms", rows[1][1], P99_MS, "ms"))  # type: ignore[arg-type]


@contextmanager
def real_time() -> Iterator[bool]:
    """Real-time priority for this process and those that it starts meanwhile; says whether the system allows it.

    The bar is on the engine: a process that takes its turn on the client's core delays every stamp by its time slice.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _round(ctx: Context) -> tuple[float, float, float, int, float, float]:
    """p50, p99 and maximum in ms; events; seconds for which the worker was ready without a core; share of steal."""
    log = ctx.scratch / "stamps.bin"
    records = ctx.fresh_dir("records")
    events = ctx.size(200, 40)
    command = [ctx.tools.streams, "--port", "0", "--events", str(events), "--rate", str(TOKENS_PER_S)]
    with LineServer([*command, "--log", str(log)], ctx.server_core) as server:
        asked = {
            "port": server.port,
            "target": {"method": "POST", "response": OPENAI_RESPONSE, "record_events": True, "timeout_ns": 120 * 10**9},
            "segments": [{"counter": {"start": 0}}],
            # Streams that all begin at once would also beat in step: the starts are spread over one gap.
            "load": closed_load(STREAMS, "staggered", stagger_ns=10**9 // TOKENS_PER_S),
            "stop": {"count": STREAMS},
            "dir": str(records),
        }
        finished, outcome = ctx.run_client(asked)
    found = differences_ns(pl.read_parquet(records / "*.parquet"), server_stamps(log)) / 1e6
    if found.size != STREAMS * events:
        raise BenchFailed(f"{found.size} events were stamped on both sides, not {STREAMS * events}")
    p50, p99 = float(np.median(found)), float(np.quantile(found, 0.99))
    return p50, p99, float(found.max()), int(found.size), outcome["worker_waits_s"], finished.steal


def server_stamps(log: Path) -> dict[int, np.ndarray]:
    """The times in ns at which the server's writes had returned, by request number."""
    words = np.frombuffer(log.read_bytes(), dtype="<i8")
    stamps: dict[int, np.ndarray] = {}
    at = 0
    while at < words.size:
        number, count = int(words[at]), int(words[at + 1])
        stamps[number] = words[at + 2 : at + 2 + count]
        at += 2 + count
    return stamps


def differences_ns(records: pl.DataFrame, stamps: dict[int, np.ndarray]) -> np.ndarray:
    """Our time minus the server's for every event, in ns; a request must have as many events on both sides.

    An event that we read before the server's own clock reading after its write gives a negative difference.
    """
    parts = []
    for seq, times in records.select("seq", "events_ns").iter_rows():
        theirs = stamps.get(seq)
        if theirs is None or times is None or len(times) != theirs.size:
            raise BenchFailed(f"request {seq} has not the same events on both sides")
        parts.append(np.asarray(times, dtype=np.int64) - theirs)
    return np.concatenate(parts) if parts else np.empty(0)
