"""One long level, and what it did to memory and CPU time on its way."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from benches.lib.context import Context, say
from benches.lib.loads import closed_load
from benches.lib.procs import BenchFailed, LineServer
from benches.lib.stats import Interval
from benches.lib.trend import theil_sen

__all__ = ["HEADER", "Endurance", "Part", "endure"]

CONNECTIONS = 64
BLOCKS = 20
LEAST_READINGS = 8
FLOOR = 0.1
"""This share of a block's readings lies below its floor."""
HEADER = ["", "requests/s", "resident MiB", "floor", "peak", "CPU us/request"]


@dataclass(frozen=True)
class Part:
    """A stretch of a long level: resident bytes in the middle, at the floor and at the peak; per request and second."""

    rss_bytes: float
    floor_bytes: float
    peak_bytes: float
    cpu_s: float
    rate: float

    def row(self, name: str) -> list[object]:
        """A row under `HEADER`."""
        memory = [f"{each / 2**20:.1f}" for each in (self.rss_bytes, self.floor_bytes, self.peak_bytes)]
        return [name, f"{self.rate:.0f}", *memory, f"{self.cpu_s * 1e6:.2f}"]


@dataclass(frozen=True)
class Endurance:
    """Readings on the way, each (n,): requests done, resident bytes, CPU s of the whole process, the clock in s."""

    done: np.ndarray
    rss_bytes: np.ndarray
    cpu_s: np.ndarray
    at_s: np.ndarray

    def tenth(self, k: int) -> Part:
        """The k-th tenth of the requests, from 0."""
        inside = self._between(k / 10, (k + 1) / 10)
        first, last = inside[0], inside[-1]
        cpu_s, wall_s, requests = (float(of[last] - of[first]) for of in (self.cpu_s, self.at_s, self.done))
        rss_bytes = self.rss_bytes[inside]
        floor, middle = np.quantile(rss_bytes, [FLOOR, 0.5])
        return Part(float(middle), float(floor), float(rss_bytes.max()), cpu_s / requests, requests / wall_s)

    def floor_per_request(self) -> Interval:
        """Slope of the resident bytes over requests, first tenth left out.

        Resident memory is a saw-tooth: rows gather for a second, encoded columns until their part is closed, and how
        high that goes is a matter of the rate, which neighbours of the machine change. What stays whatever is closed is
        the floor, so each of some blocks of several parts counts by its floor. What is held of requests that are over
        lifts it as it lifts all the rest.
        """
        readings = self._between(0.1, 1.0).size
        blocks = min(BLOCKS, readings // LEAST_READINGS)
        if blocks < 4:
            raise BenchFailed(f"{readings} readings: too short a run")
        edges = np.linspace(0.1, 1.0, blocks + 1)
        inside = [self._between(low, high) for low, high in pairwise(edges)]
        middles = np.array([self.done[each].mean() for each in inside])
        return theil_sen(middles, np.array([np.quantile(self.rss_bytes[each], FLOOR) for each in inside]))

    def _between(self, low: float, high: float) -> np.ndarray:
        """Numbers of the readings between two shares of the requests; raises BenchFailed where there are too few."""
        total = self.done[-1]
        inside = np.flatnonzero((self.done >= low * total) & (self.done <= high * total))
        if inside.size < 3:
            raise BenchFailed(f"{inside.size} readings in a part of the run: too short a run")
        return inside


def endure(ctx: Context, requests: int, timeout_s: float) -> Endurance:
    """A closed loop over keep-alive connections against the canned responder, every request on disk."""
    say(f"{requests} requests")
    folder = ctx.fresh_dir("records")
    series = folder / "series.txt"
    with LineServer([ctx.tools.canned, "--port", "0"], ctx.server_core) as server:
        asked = {
            "port": server.port,
            "load": closed_load(CONNECTIONS),
            "stop": {"count": requests},
            "dir": str(folder / "records"),
            "series": str(series),
        }
        _, outcome = ctx.run_client(asked, timeout_s)
    if outcome["rows"] != requests:
        raise BenchFailed(f"{outcome['rows']} records of {requests} requests")
    return read_series(series)


def read_series(path: Path) -> Endurance:
    """What benches.client has written of itself: a line of four numbers for each reading."""
    readings = np.loadtxt(path, ndmin=2)
    if readings.shape[0] < 2:
        raise BenchFailed(f"{readings.shape[0]} readings: too short a run")
    return Endurance(*readings.T)
