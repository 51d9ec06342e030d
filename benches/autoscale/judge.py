"""How long it takes to judge a day: ``python -m benches.autoscale.judge [--requests 1000000] [--replicas 1000]``.

A day of requests at a rate that follows the sun, on replicas that follow it, read every 15 s: replicas, and of each
replica its requests at work and waiting, cache, GPU and power. `gpusize autoscale report` reads the records and the
series, judges, prints and writes, in a process of its own. Tables go to standard output, and with ``--record`` to
benches/RESULTS.md. The exit code is 1 when the bar is short.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from benches.lib.bars import Bar, exit_code
from benches.lib.context import say
from benches.lib.host import ROOT, facts
from benches.lib.procs import run_measured
from benches.lib.results import Report
from benches.lib.stats import Interval, plain
from gpusize.records.schema import OUTCOMES, record_dtypes

MOST_S = 30.0
DAY_S, STEP_S = 86_400, 15.0
START_NS, WALL_NS = 1_000_000_000_000, 1_795_000_000_000_000_000
GAUGES = ("running", "waiting", "kv_cache_use", "gpu_use", "gpu_power")
STAGES = 24


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a day, judge it, print."""
    options = _options(arguments)
    report = Report()
    judge_day(report, requests=options.requests, replicas=options.replicas, repeats=options.repeats, place=options.dir)
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


def judge_day(
    report: Report, *, requests: int = 1_000_000, replicas: int = 1000, repeats: int = 3, place: str | None = None
) -> None:
    """Judge a day with so many requests on up to so many replicas, and add the table and the bar."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        run = write_day(Path(folder), requests, replicas)
        readings = int(pl.scan_parquet(run / "series" / "series.parquet").select(pl.len()).collect().item())
        command = [sys.executable, "-m", "gpusize", "autoscale", "report", str(run), "--gpus-per-replica", "2"]
        made = [run_measured([*command, "--gpu-hour-price", "2.5"]) for _ in range(repeats)]
        told = json.loads((run / "autoscale.json").read_text())
    walls = [each.wall_s for each in made]
    rows: list[list[object]] = [
        ["wall, s", plain(min(walls)), plain(max(walls))],
        ["CPU, s", *(plain(pick(each.cpu_s for each in made)) for pick in (min, max))],
        ["most memory, MB", *(plain(pick(each.peak_rss_bytes / 1e6 for each in made)) for pick in (min, max))],
    ]
    paid = told["paid"]
    note = (
        f"{requests:,} requests in {STAGES} stages, {readings:,} readings of up to {replicas:,} replicas every "
        f"{STEP_S:g} s, {repeats} times; {paid['gpu_hours']:.0f} GPU-hours, replicas known for {paid['known_s']:.0f} s."
    )
    report.table(f"a day with up to {replicas:,} replicas judged", ["what", "least", "most"], rows, note)
    report.bar(Bar("judge_day", Interval(float(np.median(walls)), min(walls), max(walls)), MOST_S, "s"))


def write_day(folder: Path, requests: int, replicas: int, seed: int = 1) -> Path:
    """A run folder of a day with its pulled series."""
    rnd = np.random.default_rng(seed)
    run = folder / "day"
    hours = np.arange(STAGES)
    weights = 0.55 - 0.45 * np.cos(2 * np.pi * (hours + 0.5) / STAGES)
    counts = np.round(requests * weights / weights.sum()).astype(int)
    length = DAY_S // STAGES
    for number, count in enumerate(counts.tolist()):
        _level(run, number, rnd, count, number * length, length)
    about = {"schema": 1, "run": "day", "created": "2026-11-20T00:00:00+00:00", "targets": [{"gpus": 2}]}
    (run / "run.json").write_text(json.dumps({**about, "options": {"slo": ["p95 ttft <= 2s"]}, "labels": {}}))
    day_ns = DAY_S * 10**9
    times = {"mono_ns": [START_NS, START_NS + day_ns], "wall_ns": [WALL_NS, WALL_NS + day_ns], "uncertainty_ns": [0, 0]}
    pl.DataFrame(times).write_parquet(run / "clocks.parquet")
    say(f"{requests:,} requests written")
    _series(run / "series", rnd, replicas)
    return run


def _level(run: Path, number: int, rnd: np.random.Generator, count: int, at_s: int, length_s: int) -> None:
    place = run / "levels" / f"{number:04d}"
    (place / "records").mkdir(parents=True)
    due = START_NS + np.sort(rnd.integers(at_s * 10**9, (at_s + length_s) * 10**9, count))
    first = due + (rnd.lognormal(-1.2, 0.9, count) * 1e9).astype(np.int64)
    end = first + (rnd.lognormal(1.0, 0.5, count) * 1e9).astype(np.int64)
    known = {
        "visit": np.full(count, number),
        "seq": np.arange(count),
        "due_ns": due,
        "fired_ns": due,
        "sent_ns": due,
        "first_byte_ns": first,
        "first_token_ns": first,
        "last_token_ns": end,
        "end_ns": end,
        "tokens_in": rnd.integers(50, 2000, count),
        "tokens_out": rnd.integers(10, 600, count),
        "outcome": np.where(rnd.random(count) < 0.002, OUTCOMES.index("http_error"), 0),
    }
    zero = {"stream", "attempt", "row", "target", "model", "host", "worker", "conn", "events", "status"}
    pl.DataFrame(
        [
            pl.Series(name, known[name]).cast(dtype)
            if name in known
            else pl.repeat(0 if name in zero else None, count, dtype=dtype, eager=True).alias(name)
            for name, dtype in record_dtypes().items()
        ]
    ).write_parquet(place / "records" / "part-0000.parquet")
    start, close = START_NS + at_s * 10**9, START_NS + (at_s + length_s) * 10**9
    meta = {
        "schema": 1,
        "visit": number,
        "setting": {"kind": "open", "rate": count / length_s, "process": "poisson", "duration_s": length_s},
        "state": "done",
        "intervals": [{"name": "steady", "start_ns": start, "end_ns": close, "method": "all"}],
        "start_ns": start,
        "close_ns": close,
        "end_ns": max(close, int(end.max())) if number == STAGES - 1 else close,
        "rows": count,
    }
    (place / "level.json").write_text(json.dumps(meta))


def _series(folder: Path, rnd: np.random.Generator, replicas: int) -> None:
    """As they are pulled: a part a name; each replica is scraped at a time of its own."""
    parts = folder / "series.parquet"
    parts.mkdir(parents=True)
    at = np.arange(-STEP_S, DAY_S + 120, STEP_S)
    course = np.clip(np.round(replicas * (0.55 - 0.45 * np.cos(2 * np.pi * at / DAY_S))), 1, replicas).astype(int)
    pods = np.array([json.dumps({"namespace": "llm", "pod": f"llama-decode-{k:04d}"}) for k in range(replicas)])
    phase_ns = rnd.integers(0, int(STEP_S * 1e9), replicas)
    rows, pod = np.repeat(np.arange(at.size), course), np.concatenate([np.arange(n) for n in course])
    t_ns = WALL_NS + (at * 1e9).astype(np.int64)
    for name in GAUGES:
        values = np.round(rnd.gamma(2.0, 4.0, rows.size), 3)
        _write(parts / f"part-{name}.parquet", t_ns[rows] + phase_ns[pod], name, pods[pod], values)
    for name, late in (("replicas_desired", 0), ("replicas", 0), ("replicas_ready", 8)):
        values = np.roll(course, late).astype(float)
        _write(parts / f"part-{name}.parquet", t_ns, name, np.full(at.size, '{"deployment": "llama"}'), values)
    told = {name: {"kind": "gauge", "interval_s": STEP_S} for name in GAUGES}
    about = {"version": 1, "clock": {"offset_ns": 0, "uncertainty_ns": 5_000_000}, "names": told}
    (folder / "series.json").write_text(json.dumps(about))


def _write(file: Path, t_ns: np.ndarray, name: str, labels: np.ndarray, values: np.ndarray) -> None:
    frame = pl.DataFrame({"t_ns": t_ns, "labels": labels, "value": values}).with_columns(
        pl.lit(name).alias("name"), pl.lit(None, dtype=pl.Float64).alias("le")
    )
    frame.select("t_ns", "name", "labels", "le", "value").write_parquet(file)
    say(f"{frame.height:,} readings of {name} written")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.autoscale.judge")
    parser.add_argument("--requests", type=int, default=1_000_000, help="of the day")
    parser.add_argument("--replicas", type=int, default=1000, help="at its peak")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dir", help="where the day is written: 400 MB")
    parser.add_argument("--record", action="store_true", help="append to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.command = " ".join(["python -m benches.autoscale.judge", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
