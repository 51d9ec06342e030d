"""A day of 200 series at 15 s, out of a real Prometheus that promtool filled.

Ten replicas with gauges, counters and a histogram each. ``gpusize autoscale pull`` is a process of its own; what it
keeps is held against what was written, sample by sample. Given again it must ask for nothing but the server's time, and
with an hour more for that hour, by the server's own count of queries.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benches.lib.bars import Bar
from benches.lib.context import say
from benches.lib.procs import BenchFailed, Finished, run_measured
from benches.lib.results import Report
from benches.lib.stats import Interval, plain
from gpusize.records.series import scan_series
from tests.servers.real_prometheus import RealPrometheus, fill, is_there

__all__ = ["pull_day"]

WALL_S, PEAK_MIB = 60.0, 1024.0
TIME_QUESTIONS = 5.0
"""What a pull with nothing to pull asks: the time, so often."""
DAY_S, MORE_S, STEP_S = 86_400, 3_600, 15
BEGIN_S = 1_750_000_200
REPLICAS, STARTS = 10, 3
BOUNDS = ("0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "25.0", "+Inf")
GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
COUNTERS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:num_preemptions_total")
TTFT = "vllm:time_to_first_token_seconds"
NAMES = dict(
    zip(
        (*GAUGES, *COUNTERS, f"{TTFT}_bucket", f"{TTFT}_sum", f"{TTFT}_count"),
        (
            "running",
            "waiting",
            "kv_cache_use",
            "tokens_in",
            "tokens_out",
            "preemptions",
            "ttft",
            "ttft_sum",
            "ttft_count",
        ),
        strict=True,
    )
)
Key = tuple[str, str, float | None]
"""Canonical name, labels and bound of a series."""


def pull_day(report: Report) -> None:
    """Fill a Prometheus, pull it several times, compare; adds a table and bars."""
    if not is_there():
        raise BenchFailed("there is no prometheus or promtool on PATH: apt-get install prometheus")
    with tempfile.TemporaryDirectory(prefix="gpusize-bench-") as scratch:
        folder = Path(scratch)
        made = _series(np.random.default_rng(1))
        say(f"{len(made)} series, {sum(values.size for values in made.values()):,} samples into blocks")
        fill(folder, _lines(made))
        with RealPrometheus(folder) as server:
            fresh = [_pull(server, folder / f"out-{k}", DAY_S) for k in range(STARTS)]
            wrong = _wrong(folder / "out-0", made, DAY_S)
            again, again_asked = _counted(server, folder / "out-0", DAY_S)
            more, more_asked = _counted(server, folder / "out-0", DAY_S + MORE_S)
            wrong += _wrong(folder / "out-0", made, DAY_S + MORE_S)
        size_mb = sum(file.stat().st_size for file in (folder / "out-0").rglob("*") if file.is_file()) / 1e6
    samples = len(made) * (DAY_S // STEP_S + 1)
    rows = [
        ["the day", *_row(fresh), ""],
        ["again", *_row([again]), str(again_asked)],
        ["an hour more", *_row([more]), str(more_asked)],
    ]
    note = f"{samples:,} samples of {len(made)} series; {size_mb:.1f} MB on disk. Queries by the server's own count."
    header = ["what", "wall s", "CPU s", "peak MiB", "queries"]
    report.table("gpusize autoscale pull: a day at 15 s", header, rows, note)
    walls = [each.wall_s for each in fresh]
    peaks = [each.peak_rss_bytes / 2**20 for each in fresh]
    report.bar(Bar("pull_day_s", Interval(float(np.median(walls)), min(walls), max(walls)), WALL_S, "s"))
    report.bar(Bar("pull_day_peak_mib", Interval(float(np.median(peaks)), min(peaks), max(peaks)), PEAK_MIB, "MiB"))
    report.bar(Bar("pull_wrong_samples", Interval.exact(float(wrong)), 0.0))
    report.bar(Bar("pull_again_queries", Interval.exact(float(again_asked)), TIME_QUESTIONS))


def _series(random: np.random.Generator) -> dict[Key, np.ndarray]:
    """Values at each scrape, by series as it is kept."""
    n = (DAY_S + MORE_S) // STEP_S + 1
    made: dict[Key, np.ndarray] = {}
    for k in range(REPLICAS):
        labels = f'{{"instance":"r{k}","job":"vllm"}}'
        for name in GAUGES:
            made[NAMES[name], labels, None] = random.integers(0, 100, n) / (100 if name.endswith("perc") else 1)
        for name in COUNTERS:
            made[NAMES[name], labels, None] = np.cumsum(random.integers(0, 5000, n)).astype(float)
        counts = np.cumsum(np.cumsum(random.integers(0, 4, (n, len(BOUNDS))), axis=0), axis=1).astype(float)
        for at, bound in enumerate(BOUNDS):
            made["ttft", labels, float(bound)] = counts[:, at]
        made["ttft_count", labels, None] = counts[:, -1]
        made["ttft_sum", labels, None] = np.cumsum(random.integers(0, 900, n)) / 8
    return made


def _lines(made: dict[Key, np.ndarray]) -> Iterator[str]:
    metrics = {name: metric for metric, name in NAMES.items()}
    kinds = dict.fromkeys(COUNTERS, "counter") | dict.fromkeys(GAUGES, "gauge")
    for metric in (*GAUGES, *COUNTERS, TTFT):
        yield f"# TYPE {metric.removesuffix('_total')} {kinds.get(metric, 'histogram')}"
        for (name, labels, le), values in made.items():
            if not metrics[name].startswith(metric):
                continue
            pairs = {**json.loads(labels), **({} if le is None else {"le": "+Inf" if np.isinf(le) else repr(le)})}
            head = f"{metrics[name]}{{{','.join(f'{key}={json.dumps(text)}' for key, text in pairs.items())}}}"
            for at, value in enumerate(values.tolist()):
                yield f"{head} {value!r} {BEGIN_S + at * STEP_S}"


def _pull(server: RealPrometheus, out: Path, length_s: int) -> Finished:
    command = [sys.executable, "-m", "gpusize", "autoscale", "pull", "--prometheus", server.url, "--preset", "vllm"]
    whole = ["--from", str(BEGIN_S), "--to", str(BEGIN_S + length_s), "--margin", "0s", "--out", str(out), "--json"]
    return run_measured([*command, *whole])


def _counted(server: RealPrometheus, out: Path, length_s: int) -> tuple[Finished, int]:
    before = server.asked()
    done = _pull(server, out, length_s)
    return done, server.asked() - before


def _wrong(out: Path, made: dict[Key, np.ndarray], length_s: int) -> int:
    """Samples that are missing, doubled, or other than what was written."""
    wrong, seen = 0, 0
    pulled = scan_series(out).sort("t_ns").collect().partition_by(["name", "labels", "le"], as_dict=True)
    for (name, labels, le), values in made.items():
        expected = values[: length_s // STEP_S + 1]
        mine = pulled.get((name, labels, le))
        if mine is None or mine.height != expected.size:
            wrong += expected.size
            continue
        seen += 1
        times = (BEGIN_S + STEP_S * np.arange(expected.size)) * 10**9
        wrong += int(((mine["value"].to_numpy() != expected) | (mine["t_ns"].to_numpy() != times)).sum())
    return wrong + len(pulled) - seen


def _row(runs: list[Finished]) -> list[str]:
    def median(values: list[float]) -> str:
        return plain(float(np.median(values)))

    walls, cpus = [each.wall_s for each in runs], [each.cpu_s for each in runs]
    return [median(walls), median(cpus), median([each.peak_rss_bytes / 2**20 for each in runs])]
