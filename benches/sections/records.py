"""Records: the hand-over to Polars, percentiles of what lies on disk, and the generator's memory over a long run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.procs import BenchFailed, LineServer, pinned, run_measured
from benches.lib.stats import Interval, bootstrap_median
from benches.sections.cpu import CONNECTIONS

__all__ = ["records"]

MIB = 1024**2
TO_POLARS_MS = 10.0
PERCENTILES_MIB = 1024.0
GENERATOR_MIB = 300.0
TURNS = 15

_TO_POLARS = """
import json, sys, time, polars as pl
from gpusize import _core
rows = int(sys.argv[1])
# Polars sets itself up at the first frame, however small: that is not the hand-over.
pl.DataFrame(_core.synthetic_rows(1000))
batches = _core.synthetic_rows(rows)
start = time.perf_counter_ns()
frame = pl.DataFrame(batches)
taken_ns = time.perf_counter_ns() - start
assert frame.height == rows, frame.height
print(json.dumps({"ns": taken_ns, "columns": frame.width, "batches": frame.n_chunks()}))
"""

_TO_DISK = """
import sys, polars as pl
from gpusize import _core
rows, folder, part = int(sys.argv[1]), sys.argv[2], 1 << 18
frame = pl.DataFrame(_core.synthetic_rows(rows))
for number, start in enumerate(range(0, rows, part)):
    frame.slice(start, part).write_parquet(f"{folder}/part-{number:05d}.parquet", compression="lz4")
"""

_PERCENTILES = """
import json, sys
from pathlib import Path
from typing import Any
from benches.client import vm_hwm
from gpusize.records.schema import scan
from gpusize.analysis.level import LevelData
from gpusize.analysis.summary import summarize
setting = {"kind": "closed", "concurrency": 64}
parts = sorted(Path(sys.argv[1]).glob("part-*.parquet"))
level = LevelData(0, setting, "done", [], 1, "bench", {"setting": setting}, records=scan(parts))
row = summarize([level]).row(0, named=True)
print(json.dumps({"n": row["n"], "p99_s": row["runtime_p99_s"], "vm_hwm_bytes": vm_hwm()}))
"""


def records(ctx: Context) -> None:
    """Three bars that have no peer: bounds of our own."""
    rows = ctx.size(10_000_000, 200_000)
    findings = [_to_polars(ctx, rows), _percentiles(ctx, rows), _generator(ctx)]
    ctx.report.table("records", ["", "measured"], [[name, bar.measured] for name, bar in findings])
    for _, bar in findings:
        ctx.report.bar(bar)


def _to_polars(ctx: Context, rows: int) -> tuple[str, Bar]:
    # A process for each turn: whoever opens a result pays for the first hand-over, not for the tenth.
    command = pinned([sys.executable, "-c", _TO_POLARS, str(rows)], ctx.client_core)
    turns = [json.loads(run_measured(command).stdout) for _ in range(ctx.size(TURNS, 2))]
    say(f"{rows} rows to Polars: {[round(turn['ns'] / 1e6, 2) for turn in turns]} ms")
    taken_ms = bootstrap_median([turn["ns"] / 1e6 for turn in turns])
    shape = f"{rows} rows, {turns[0]['columns']} columns, {turns[0]['batches']} batches"
    name = f"{shape}, to a DataFrame, ms ({len(turns)} processes)"
    return name, Bar("records_to_polars_ms", taken_ms, TO_POLARS_MS, "ms")


def _percentiles(ctx: Context, rows: int) -> tuple[str, Bar]:
    folder: Path = ctx.fresh_dir("percentiles")
    run_measured([sys.executable, "-c", _TO_DISK, str(rows), str(folder)])
    said = json.loads(run_measured([sys.executable, "-c", _PERCENTILES, str(folder)]).stdout)
    if said["n"] != rows or not said["p99_s"] > 0:
        raise BenchFailed(f"the summary of {rows} rows says {said}")
    peak = Interval.exact(said["vm_hwm_bytes"] / MIB)
    return f"summary of {rows} rows on disk, peak RSS, MiB", Bar("summary_peak_rss_mib", peak, PERCENTILES_MIB, "MiB")


def _generator(ctx: Context) -> tuple[str, Bar]:
    count = ctx.size(5_000_000, 20_000)
    with LineServer([ctx.tools.canned, "--port", "0"], ctx.server_core) as server:
        out = str(ctx.fresh_dir("runs"))
        command = [sys.executable, "-m", "gpusize", "run", "--url", f"http://127.0.0.1:{server.port}/", "--out", out]
        command += ["--api", "generic", "--method", "GET", "--prompt", "none", "--quiet", "--json"]
        command += ["--concurrencies", str(CONNECTIONS), "--count", str(count), "--slo", "p95 runtime <= 10ms"]
        finished = run_measured(pinned(command, ctx.client_core), timeout_s=1200)
    document = json.loads(finished.stdout)
    ended = sum(level["rows"] for level in _levels(out))
    if ended != count:
        raise BenchFailed(f"{count} requests were asked for, {ended} have a record: {document['alerts']}")
    peak = Interval.exact(finished.peak_rss_bytes / MIB)
    name = f"gpusize run of {count} requests with summary, plots and report, peak RSS, MiB"
    return name, Bar("generator_peak_rss_mib", peak, GENERATOR_MIB, "MiB")


def _levels(out: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in Path(out).glob("*/levels/*/level.json")]
