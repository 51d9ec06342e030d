"""A gigabyte of another tool's requests as a run: ``python -m benches.imports [--megabytes 1000] [--record]``.

Profile exports in the form of perf_analyzer are made with known requests: one with 64 numbers in each, as a real sweep
had, and one with 2, which makes it more requests. ``gpusize import`` reads each in a process of its own; the figures of
the run are held against numpy's over what was drawn. Tables go to standard output, and with ``--record`` to
benches/RESULTS.md. The exit code is 1 when a bar is short.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import gpusize
from benches.lib.bars import Bar, exit_code
from benches.lib.host import ROOT, facts
from benches.lib.procs import Finished, run_measured
from benches.lib.results import Report
from benches.lib.stats import Interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

NUMBERS = (64, 2)
USERS = (1, 4, 16, 64)
PEAK_MIB, CPU_S = 500.0, 60.0
PROBS = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "max": 1.0}
BEGUN_NS = 1_795_172_678_070_459_821
_TENSOR = "1.8521564417127637e+31"


@dataclass(frozen=True)
class Level:
    """What was drawn for one concurrency: times of requests (ns), in order of sending, and the window."""

    users: int
    sent: NDArray[np.int64]
    took: NDArray[np.int64]
    window: tuple[int, int]

    def known(self) -> dict[str, float]:
        """The figures that the run must have, by column of its summary."""
        inside = (self.sent >= self.window[0]) & (self.sent < self.window[1])
        took_s = self.took[inside] / 1e9
        times = {f"runtime_{name}_s": float(np.quantile(took_s, prob)) for name, prob in PROBS.items()}
        ended = self.sent + self.took
        # All users are busy from the first window to the last: no edge has to be thought of.
        answered = int(((ended > self.window[0]) & (ended <= self.window[1])).sum())
        rate = answered / ((self.window[1] - self.window[0]) / 1e9)
        return {"n": float(inside.sum()), "runtime_mean_s": float(took_s.mean()), "achieved_rate": rate, **times}


class Imported(NamedTuple):
    """One import: the process, and the largest relative difference of a figure."""

    process: Finished
    off: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Make, import, compare, print."""
    options = _options(arguments)
    report = Report()
    rows = []
    for numbers in NUMBERS:
        with tempfile.TemporaryDirectory(prefix="gpusize-bench-") as scratch:
            file = Path(scratch) / "profile.json"
            levels = _write(file, numbers, options.megabytes * 10**6, np.random.default_rng(options.seed))
            found = _imported(file, levels)
            requests = sum(level.sent.size for level in levels)
            size = file.stat().st_size / 1e6
        peak_mib, cpu_s = found.process.peak_rss_bytes / 2**20, found.process.cpu_s
        cells = (f"{size:.0f}", f"{requests:,}", f"{peak_mib:.0f}", f"{cpu_s:.1f}", f"{found.process.wall_s:.1f}")
        rows.append([f"{numbers}", *cells, f"{1e6 * cpu_s / requests:.2f}", f"{found.off:.1e}"])
        for name, value, bound, unit in (
            (f"import_{numbers}_peak_rss_mib", peak_mib, PEAK_MIB, "MiB"),
            (f"import_{numbers}_cpu_s", cpu_s, CPU_S, "s"),
            (f"import_{numbers}_figures_error", found.off, 1e-9, ""),
        ):
            report.bar(Bar(name, Interval.exact(value), bound, unit))
    header = ["numbers per request", "MB", "requests", "peak MiB", "CPU s", "wall s", "us per request", "largest error"]
    note = (
        "CPU of the whole process by wait4, start-up included. Errors are relative, of count, rate, mean and quantiles."
    )
    report.table("gpusize import perf_analyzer: a profile export of four levels", header, rows, note)
    if options.record:
        report.append_to(ROOT / "benches" / "RESULTS.md", facts(), options.command)
    return exit_code(report.bars)


def _write(file: Path, numbers: int, size: int, rnd: np.random.Generator) -> list[Level]:
    """A profile export of about so many bytes, and what is in it."""
    tensor = ", ".join([_TENSOR] * numbers)
    pattern = '{"timestamp": %d, "request_inputs": {"x": [' + tensor + ']}, "response_timestamps": [%d], '
    pattern += '"response_outputs": [{"y": [' + tensor + "]}]}"
    each = len(pattern % (BEGUN_NS, BEGUN_NS)) + 2
    levels = []
    begun = BEGUN_NS
    with file.open("w") as out:
        out.write('{"experiments": [')
        for users in USERS:
            level = _drawn(users, size // each // len(USERS), begun, rnd)
            begun = int(level.sent[-1]) + 60 * 10**9
            levels.append(level)
            out.write(", " if len(levels) > 1 else "")
            out.write(json.dumps({"experiment": {"mode": "concurrency", "value": users}})[:-1] + ', "requests": [')
            ended = (level.sent + level.took).tolist()
            for at, pair in enumerate(zip(level.sent.tolist(), ended, strict=True)):
                out.write((", " if at else "") + pattern % pair)
            out.write(f'], "window_boundaries": {list(level.window)}}}')
        out.write('], "version": "2.60.0", "service_kind": "triton", "endpoint": ""}')
    return levels


def _drawn(users: int, requests: int, begun: int, rnd: np.random.Generator) -> Level:
    """A closed loop without pauses; some answers are a hundred times slower than others."""
    each = requests // users
    took = rnd.lognormal(16, 0.7, (users, each)).astype(np.int64)
    ended = begun + np.cumsum(took, axis=1)
    sent = (ended - took).ravel()
    order = np.argsort(sent, kind="stable")
    last = int(sent.max())
    low, high = begun + (last - begun) // 10, begun + (last - begun) * 8 // 10
    return Level(users, sent[order], took.ravel()[order], (low, high))


def _imported(file: Path, levels: Sequence[Level]) -> Imported:
    command = [
        sys.executable,
        "-m",
        "gpusize",
        "import",
        "perf_analyzer",
        str(file),
        "--out",
        str(file.parent / "runs"),
    ]
    process = run_measured(command)
    summary = gpusize.open_run(process.stdout.strip()).summary
    off = [
        abs(row[name] / known - 1)
        for level, row in zip(levels, summary.iter_rows(named=True), strict=True)
        for name, known in level.known().items()
    ]
    return Imported(process, max(off))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="python -m benches.imports")
    parser.add_argument("--megabytes", type=int, default=1000, help="size of each file (default 1000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="append the tables to benches/RESULTS.md")
    options = parser.parse_args(given)
    options.command = " ".join(["python -m benches.imports", *given])
    return options


if __name__ == "__main__":
    sys.exit(main())
