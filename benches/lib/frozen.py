"""Generators against a server that freezes once: how each is told a constant rate, and the p99 that it reports."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benches.lib.context import Context
from benches.lib.peers import parse_wrk, peer_program, require
from benches.lib.procs import BenchFailed

__all__ = ["GPUSIZE", "OTHERS", "WRK", "Told", "Tool"]

CONNECTIONS = 64
RATE = 1_000
K6_SCRIPT = """import http from 'k6/http';
export const options = { discardResponseBodies: true, summaryTrendStats: ['p(99)', 'max'], scenarios: { load: {
  executor: 'constant-arrival-rate', rate: %d, timeUnit: '1s', duration: '%ds',
  preAllocatedVUs: %d, maxVUs: %d } } };
export default function () { http.get(__ENV.URL); }
"""


@dataclass(frozen=True)
class Told:
    """What a generator reports: requests, the 99th percentile of its latencies, the longest where it says so."""

    requests: int
    p99_s: float
    longest_s: float | None


@dataclass(frozen=True)
class Tool:
    """A generator.

    Args:
        name: as in the table.
        program: raises BenchFailed when it is not there.
        command: of context, port, seconds and an empty folder.
        read: of its standard output and that folder.
    """

    name: str
    program: Callable[[], str]
    command: Callable[[Context, int, int, Path], Sequence[str]]
    read: Callable[[str, Path], Told]


def _gpusize(_ctx: Context, port: int, seconds: int, folder: Path) -> list[str]:
    target = ["--url", f"http://127.0.0.1:{port}/", "--api", "generic", "--method", "GET", "--prompt", "x"]
    load = ["--rates", str(RATE), "--process", "constant", "--duration", f"{seconds}s", "--warmup", "0s"]
    quiet = ["--no-gpu-sample", "--no-plots", "--quiet", "--json", "--out", str(folder)]
    return [sys.executable, "-m", "gpusize", "run", *target, *load, "--connections", str(CONNECTIONS), *quiet]


def _read_gpusize(text: str, _folder: Path) -> Told:
    (level,) = json.loads(text)["summary"]
    if level["errors"]:
        raise BenchFailed(f"gpusize had {level['errors']} errors")
    return Told(level["n"], level["runtime_p99_s"], level["runtime_max_s"])


_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_WRK_P99 = re.compile(r"^\s+99%\s+([\d.]+)(us|ms|s)\s*$", re.MULTILINE)
_WRK_MAX = re.compile(r"^\s+Latency\s+\S+\s+\S+\s+([\d.]+)(us|ms|s)", re.MULTILINE)


def parse_wrk_latency(text: str) -> Told:
    """Of ``wrk --latency``."""
    p99, longest = _WRK_P99.search(text), _WRK_MAX.search(text)
    if p99 is None or longest is None:
        raise BenchFailed(f"wrk printed no latencies:\n{text[-500:]}")
    seconds = [float(found[1]) * _UNITS[found[2]] for found in (p99, longest)]
    return Told(parse_wrk(text).requests, seconds[0], seconds[1])


def _oha(corrected: bool) -> Callable[[Context, int, int, Path], list[str]]:
    def command(_ctx: Context, port: int, seconds: int, _folder: Path) -> list[str]:
        load = [f"-c{CONNECTIONS}", f"-q{RATE}", f"-z{seconds}s", *(["--latency-correction"] if corrected else [])]
        program = peer_program("oha", "oha", "program")
        return [program, "--no-tui", "--output-format=json", *load, f"http://127.0.0.1:{port}/"]

    return command


def parse_oha_latency(text: str) -> Told:
    """Of oha's ``--output-format json``."""
    said = json.loads(text)
    longest = float(said["summary"]["slowest"])
    return Told(sum(said["statusCodeDistribution"].values()), float(said["latencyPercentiles"]["p99"]), longest)


def _k6(_ctx: Context, port: int, seconds: int, folder: Path) -> list[str]:
    script = folder / "k6.js"
    script.write_text(K6_SCRIPT % (RATE, seconds, CONNECTIONS, CONNECTIONS), encoding="utf-8")
    words = ["--quiet", "--no-usage-report", "--summary-export", str(folder / "k6.json")]
    return [peer_program("k6", "k6", "program"), "run", *words, "-e", f"URL=http://127.0.0.1:{port}/", str(script)]


def _read_k6(_text: str, folder: Path) -> Told:
    metrics = json.loads((folder / "k6.json").read_text(encoding="utf-8"))["metrics"]
    times = metrics["http_req_duration"]
    return Told(int(metrics["http_reqs"]["count"]), times["p(99)"] / 1e3, times["max"] / 1e3)


def _perf_analyzer(_ctx: Context, port: int, seconds: int, folder: Path) -> list[str]:
    # Its OpenAI mode is asynchronous only; TorchServe's is a plain POST that it sends in its synchronous one.
    body, inputs = folder / "body.txt", folder / "inputs.json"
    body.write_text("x", encoding="utf-8")
    inputs.write_text(json.dumps({"data": [{"TORCHSERVE_INPUT": [str(body)]}]}), encoding="utf-8")
    load = ["--sync", "--request-rate-range", str(RATE), "--request-count", str(RATE * seconds)]
    target = ["-m", "m", "--service-kind", "torchserve", "-u", f"127.0.0.1:{port}", "--input-data", str(inputs)]
    return [
        peer_program("clients", "perf_analyzer", "perf_analyzer"),
        *target,
        *load,
        "--max-threads",
        str(CONNECTIONS),
    ]


_PA_COUNT = re.compile(r"Request count: (\d+)")
_PA_P99 = re.compile(r"p99 latency: (\d+) usec")


def parse_perf_analyzer(text: str) -> Told:
    """Of what perf_analyzer prints; it does not say the longest."""
    count, p99 = _PA_COUNT.search(text), _PA_P99.search(text)
    if count is None or p99 is None:
        raise BenchFailed(f"perf_analyzer printed no latencies:\n{text[-500:]}")
    return Told(int(count[1]), int(p99[1]) / 1e6, None)


def _wrk_words(_ctx: Context, port: int, seconds: int, _folder: Path) -> list[str]:
    load = ["-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "10s", "--latency"]
    return [require("wrk", "wrk"), *load, f"http://127.0.0.1:{port}/"]


GPUSIZE = Tool("gpusize", lambda: sys.executable, _gpusize, _read_gpusize)
WRK = Tool("wrk, as fast as it can", lambda: require("wrk", "wrk"), _wrk_words, lambda text, _: parse_wrk_latency(text))
"""A closed loop: it knows no rate."""
OTHERS = (
    Tool(
        "oha -q",
        lambda: peer_program("oha", "oha", "program"),
        _oha(corrected=False),
        lambda text, _: parse_oha_latency(text),
    ),
    Tool(
        "oha -q --latency-correction",
        lambda: peer_program("oha", "oha", "program"),
        _oha(corrected=True),
        lambda text, _: parse_oha_latency(text),
    ),
    Tool("k6, constant arrival rate", lambda: peer_program("k6", "k6", "program"), _k6, _read_k6),
    Tool(
        "perf_analyzer --sync",
        lambda: peer_program("clients", "perf_analyzer", "perf_analyzer"),
        _perf_analyzer,
        lambda text, _: parse_perf_analyzer(text),
    ),
)
"""Told a rate of 1,000/s over 64 connections."""
