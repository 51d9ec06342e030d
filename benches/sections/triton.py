"""A real Triton on CPU at saturation: throughput beside what its instances can do by its own statistics."""

from __future__ import annotations

import json
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from benches.lib.bars import Bar
from benches.lib.context import Context, say
from benches.lib.peers import peer_program
from benches.lib.procs import BenchFailed, pinned, run_measured
from benches.lib.turns import whole_range
from tests.servers.pytriton import PyTriton

__all__ = ["Counters", "triton"]

BOUND = 0.05
INSTANCES = (1, 2, 4)
IN_FLIGHT_PER_INSTANCE = 4
APIS = ("kserve", "kserve-grpc")


@dataclass(frozen=True)
class Counters:
    """What Triton has counted of a model: requests, and nanoseconds of queueing and computing."""

    requests: int
    queue_ns: int
    compute_ns: int

    @classmethod
    def parse(cls, text: str | bytes) -> Counters:
        """From the statistics of one model; of several versions the first."""
        stats = json.loads(text)["model_stats"][0]["inference_stats"]
        compute = sum(int(stats[f"compute_{part}"]["ns"]) for part in ("input", "infer", "output"))
        return cls(int(stats["success"]["count"]), int(stats["queue"]["ns"]), compute)

    @classmethod
    def read(cls, url: str, model: str) -> Counters:
        """As they stand; asked for by this process, not by gpusize."""
        with urllib.request.urlopen(f"{url}/v2/models/{model}/stats", timeout=30) as answer:
            return cls.parse(answer.read())


@dataclass(frozen=True)
class Level:
    """A level of gpusize's and what the server counted meanwhile."""

    api: str
    instances: int
    rate: float
    residence_s: float
    compute_s: float
    queue_s: float

    @property
    def capacity(self) -> float:
        """Inferences per second of instances that are never idle."""
        return self.instances / self.compute_s

    @property
    def error(self) -> float:
        """Relative, either way."""
        return abs(self.rate / self.capacity - 1)

    def cells(self) -> list[object]:
        """A row of the table; times in ms."""
        waited_ms = (self.residence_s - self.compute_s) * 1e3
        rates = [f"{self.rate:.2f}", f"{self.capacity:.2f}", f"{self.rate / self.capacity:.4f}"]
        return [
            self.api,
            self.instances,
            *rates,
            f"{self.compute_s * 1e3:.2f}",
            f"{self.queue_s * 1e3:.2f}",
            f"{waited_ms:.2f}",
        ]


def triton(ctx: Context) -> None:
    """HTTP and gRPC, with 1, 2 and 4 instances of a model that sleeps; the bar is on the worst level."""
    python, instances = Path(peer_program("triton")), INSTANCES[:2] if ctx.quick else INSTANCES
    models = {count: f"sleep_{count}" for count in instances}
    levels = []
    folder = ctx.fresh_dir("triton")
    core = pinned([], ctx.server_core)
    with PyTriton(python, folder, instances=instances, only=tuple(models.values()), prefix=core) as server:
        for api in APIS:
            for count, model in models.items():
                levels.append(_level(ctx, server, api, count, model))
                say(f"triton: {api}, {count} instances: {levels[-1].rate:.2f}/s, can do {levels[-1].capacity:.2f}/s")
    note = (
        f"{IN_FLIGHT_PER_INSTANCE} requests in flight for each instance, {ctx.size(8, 2)} s. What they can do: "
        "their number over the server's mean compute time in the level (input, infer and output; its statistics before "
        "and after). Our wait: the mean time from send to answer less that compute time, so transport is in it."
    )
    header = ["api", "instances", "requests/s", "can do/s", "ratio", "compute ms", "server's queue ms", "our wait ms"]
    ctx.report.table("Triton (PyTriton, CPU) at saturation", header, [level.cells() for level in levels], note)
    ctx.report.bar(Bar("triton_throughput_error", whole_range([level.error for level in levels]), BOUND))


def _level(ctx: Context, server: PyTriton, api: str, instances: int, model: str) -> Level:
    url = server.url if api == "kserve" else f"grpc://127.0.0.1:{server.grpc_port}"
    words = ["--url", url, "--api", api, "--model", model, "--input", "random", "--metrics-url", "none"]
    words += ["--concurrencies", str(IN_FLIGHT_PER_INSTANCE * instances), "--duration", f"{ctx.size(8, 2)}s"]
    words += ["--out", str(ctx.fresh_dir("runs")), "--json", "--no-plots"]
    before = Counters.read(server.url, model)
    finished = run_measured(pinned([sys.executable, "-m", "gpusize", "run", *words], ctx.client_core))
    after = Counters.read(server.url, model)
    (row,) = json.loads(finished.stdout)["summary"]
    requests = after.requests - before.requests
    # One more than in the level: gpusize asks once before it starts.
    if row["errors"] or requests <= row["n"]:
        raise BenchFailed(f"{api}, {model}: {row['errors']} errors; {row['n']} requests, the server counted {requests}")
    return Level(
        api,
        instances,
        row["achieved_rate"],
        row["residence_s"],
        (after.compute_ns - before.compute_ns) / requests / 1e9,
        (after.queue_ns - before.queue_ns) / requests / 1e9,
    )
