"""One long level, and what it did to memory and CPU time on its way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benches.lib.context import Context, say
from benches.lib.loads import closed_load
from benches.lib.procs import BenchFailed, LineServer

__all__ = ["Endurance", "endure"]

CONNECTIONS = 64


@dataclass(frozen=True)
class Endurance:
    """Readings on the way: requests done (n,), resident bytes (n,), CPU seconds of the whole process (n,)."""

    done: np.ndarray
    rss_bytes: np.ndarray
    cpu_s: np.ndarray

    def tenth(self, k: int) -> tuple[float, float]:
        """Median resident bytes, and CPU seconds per request, of the k-th tenth of the requests, from 0."""
        low, high = (self.done[-1] * edge / 10 for edge in (k, k + 1))
        inside = np.flatnonzero((self.done >= low) & (self.done <= high))
        if inside.size < 3:
            raise BenchFailed(f"{inside.size} readings in a tenth: too short a run")
        first, last = inside[0], inside[-1]
        cpu = (self.cpu_s[last] - self.cpu_s[first]) / (self.done[last] - self.done[first])
        return float(np.median(self.rss_bytes[inside])), float(cpu)

    def rss_per_request(self) -> tuple[float, float, float]:
        """Slope of the resident bytes over requests, first tenth left out; with the ends of its 95 % interval.

        Readings next to each other are alike, so the interval is over blocks: the slopes between medians of tenths
        (Theil 1950, Sen 1968, their quartile range widened to the extremes).
        """
        medians = np.array([self.tenth(k)[0] for k in range(1, 10)])
        at = (np.arange(1, 10) + 0.5) / 10 * self.done[-1]
        i, j = np.triu_indices(9, 1)
        slopes = (medians[j] - medians[i]) / (at[j] - at[i])
        return float(np.median(slopes)), float(np.quantile(slopes, 0.025)), float(np.quantile(slopes, 0.975))


def endure(ctx: Context, requests: int, timeout_s: float) -> Endurance:
    """A closed loop over keep-alive connections against the canned responder, every request on disk."""
    say(f"{requests} requests")
    with LineServer([ctx.tools.canned, "--port", "0"], ctx.server_core) as server:
        asked = {
            "port": server.port,
            "load": closed_load(CONNECTIONS),
            "stop": {"count": requests},
            "dir": str(ctx.fresh_dir("records")),
            "series": True,
        }
        _, outcome = ctx.run_client(asked, timeout_s)
    if outcome["rows"] != requests:
        raise BenchFailed(f"{outcome['rows']} records of {requests} requests")
    done, rss_bytes, cpu_s = (np.array(column) for column in zip(*outcome["series"], strict=True))
    return Endurance(done, rss_bytes, cpu_s)
