"""The load generators that stand beside gpusize on plain HTTP: how each is called and what it says it did."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benches.lib.context import Context
from benches.lib.peers import parse_h2load, parse_wrk, peer_program, require
from benches.lib.procs import BenchFailed, LineServer, pinned, run_measured

__all__ = ["FAST", "LOCUST", "Generator", "Said", "Taken", "take", "version"]

CONNECTIONS = 64
K6_SCRIPT = """import http from 'k6/http';
export const options = { vus: %d, duration: '%ds', discardResponseBodies: true };
export default function () { http.get(__ENV.URL); }
"""


@dataclass(frozen=True)
class Said:
    """What a generator says it did."""

    requests: int
    seconds: float
    errors: int


@dataclass(frozen=True)
class Taken:
    """A turn of one generator: what it said, what it cost, what the server had of it; ours knows its start-up."""

    requests: int
    wall_s: float
    cpu_s: float
    steal: float
    connections: int
    server_share: float
    startup_cpu_s: float = 0.0

    @property
    def cpu_us(self) -> float:
        """CPU microseconds per request, of the whole process."""
        return self.cpu_s / self.requests * 1e6

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.wall_s


@dataclass(frozen=True)
class Generator:
    """A load generator in a closed loop over 64 connections.

    Args:
        name: as in bars and tables.
        program: its path; raises BenchFailed when it is not there.
        words: its arguments, of context, url and seconds.
        read: what it said, of its standard output and the scratch folder.
        version: the arguments that make it say its version.
    """

    name: str
    program: Callable[[], str]
    words: Callable[[Context, str, int], Sequence[str]]
    read: Callable[[str, Path], Said]
    version: tuple[str, ...] = ("--version",)


def version(generator: Generator) -> str:
    """The first line of what it says about itself; wrk says it beside an error."""
    done = run_measured(["sh", "-c", '"$@" 2>&1 || true', "sh", generator.program(), *generator.version])
    return re.split(r" Copyright| from | \(go", done.stdout.splitlines()[0])[0].strip()


def take(ctx: Context, generator: Generator, seconds: int, server: Sequence[str]) -> Taken:
    """One turn against a server of its own, whose count of requests must be the generator's."""
    program = generator.program()
    with LineServer(server, ctx.server_core) as running:
        url = f"http://127.0.0.1:{running.port}/"
        command = [program, *generator.words(ctx, url, seconds)]
        finished = run_measured(pinned(command, ctx.client_core), timeout_s=10 * seconds + 60)
        busy_s, served = running.cpu_s(), running.stop()
    said = generator.read(finished.stdout, ctx.scratch)
    if said.errors:
        raise BenchFailed(f"{generator.name} saw {said.errors} errors:\n{finished.stdout[-1000:]}")
    # What is in flight when the time is over, the server may have answered.
    if not 0 <= served["requests"] - said.requests <= 2 * CONNECTIONS:
        raise BenchFailed(f"{generator.name} says {said.requests} requests, the server answered {served['requests']}")
    share = busy_s / said.seconds
    return Taken(said.requests, said.seconds, finished.cpu_s, finished.steal, served["connections"], share)


def _wrk(text: str, _scratch: Path) -> Said:
    count = parse_wrk(text)
    return Said(count.requests, count.seconds, count.errors)


def _h2load(text: str, _scratch: Path) -> Said:
    count = parse_h2load(text)
    return Said(count.requests, count.seconds, count.errors)


def parse_oha(text: str) -> Said:
    """Of ``--output-format json``; what the deadline cut off is no error."""
    said = json.loads(text)
    good = sum(count for status, count in said["statusCodeDistribution"].items() if status.startswith("2"))
    bad = sum(said["statusCodeDistribution"].values()) - good
    failed = {reason: count for reason, count in said["errorDistribution"].items() if "deadline" not in reason}
    return Said(good, float(said["summary"]["total"]), bad + sum(failed.values()))


def _oha(text: str, _scratch: Path) -> Said:
    return parse_oha(text)


def _k6_words(ctx: Context, url: str, seconds: int) -> list[str]:
    script = ctx.scratch / "k6.js"
    script.write_text(K6_SCRIPT % (CONNECTIONS, seconds), encoding="utf-8")
    summary = str(ctx.scratch / "k6.json")
    return ["run", "--quiet", "--no-usage-report", "--summary-export", summary, "-e", f"URL={url}", str(script)]


def parse_k6(summary: str, text: str) -> Said:
    """Of ``--summary-export`` and, for the time that the users ran, of the iterations' rate."""
    metrics = json.loads(summary)["metrics"]
    requests = int(metrics["http_reqs"]["count"])
    if not requests:
        raise BenchFailed(f"k6 sent nothing:\n{text[-500:]}")
    # A rate of failures: its ``passes`` are requests that failed.
    return Said(requests, requests / metrics["http_reqs"]["rate"], int(metrics["http_req_failed"]["passes"]))


def _k6(text: str, scratch: Path) -> Said:
    return parse_k6((scratch / "k6.json").read_text(encoding="utf-8"), text)


def _locust_words(_ctx: Context, url: str, seconds: int) -> list[str]:
    file = Path(__file__).parents[1] / "programs" / "locust_get.py"
    users = ["--headless", "-u", str(CONNECTIONS), "-r", str(CONNECTIONS), "-t", f"{seconds}s"]
    return ["-f", str(file), *users, "--only-summary", "--json", "--loglevel", "ERROR", "-H", url.rstrip("/")]


_LAST_LIST = re.compile(r"^\[.*^\]", re.MULTILINE | re.DOTALL)


def parse_locust(text: str) -> Said:
    """Of ``--json``, which stands in what it prints."""
    found = _LAST_LIST.search(text)
    entries = json.loads(found[0]) if found else []
    if not entries:
        raise BenchFailed(f"locust printed no result:\n{text[-500:]}")
    (entry,) = entries
    seconds = entry["last_request_timestamp"] - entry["start_time"]
    return Said(int(entry["num_requests"]), float(seconds), int(entry["num_failures"]))


def _locust(text: str, _scratch: Path) -> Said:
    return parse_locust(text)


FAST = (
    Generator(
        "wrk",
        lambda: require("wrk", "wrk"),
        lambda _, url, seconds: ["-t1", f"-c{CONNECTIONS}", f"-d{seconds}", url],
        _wrk,
        ("-v",),
    ),
    Generator(
        "h2load",
        lambda: require("h2load", "nghttp2-client"),
        lambda _, url, seconds: ["--h1", "-t1", f"-c{CONNECTIONS}", f"-D{seconds}", url],
        _h2load,
    ),
    Generator(
        "oha",
        lambda: peer_program("oha", "oha", "program"),
        lambda _, url, seconds: ["--no-tui", "--output-format=json", f"-c{CONNECTIONS}", f"-z{seconds}s", url],
        _oha,
    ),
    Generator("k6", lambda: peer_program("k6", "k6", "program"), _k6_words, _k6, ("version",)),
)
"""Compiled generators; a turn of a few seconds settles their cost."""

LOCUST = Generator("locust", lambda: peer_program("locust", "locust"), _locust_words, _locust)
"""A Python generator with a start-up that counts: its cost is the slope between two lengths."""
