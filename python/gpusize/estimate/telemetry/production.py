"""Production as it was scraped: how much came when, what each replica did, and groups of times of like load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gpusize.analysis.series.replicas import Steps, steps_of
from gpusize.estimate.telemetry.matching_log import matching_log

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.estimate.telemetry.access_log import AccessLog

__all__ = ["COUNTERS", "GAUGES", "HISTOGRAMS", "Production", "read_production", "sums_by"]

GAUGES: Final = ("running", "waiting", "kv_cache_use")
COUNTERS: Final = ("requests", "tokens_in", "tokens_out", "preemptions")
HISTOGRAMS: Final = ("ttft", "itl", "tpot", "request_time", "queue_time", "prompt_length", "output_length")

SMOOTH: Final = 9
"""Steps over which the load is averaged to say which times are alike."""
EDGES: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 0.93, 1.0)
"""Shares of the requests at which groups of load are cut: finer where the load is largest."""


@dataclass(frozen=True, slots=True, eq=False)
class Production:
    """What was seen of production.

    Attributes:
        steps: of all replicas.
        begin_ns: begin of the first bin, ns since 1970.
        bin_s: length of a bin, the median time between scrapes.
        alive: replicas that were seen in each bin, parts of one among them; shape (b,).
        per_s: requests per second and replica that came in each bin; shape (b,).
        group: of each bin, by its load smoothed, 0 for the least; shape (b,).
        of_step: group of each step, by its middle; shape (n,).
        log: the access log, as far as it is of these requests; None without one.
        log_said: what is to be said of it, or why it is not used.
    """

    steps: Steps
    begin_ns: int
    bin_s: float
    alive: NDArray[np.float64]
    per_s: NDArray[np.float64]
    group: NDArray[np.int64]
    of_step: NDArray[np.int64]
    log: AccessLog | None = None
    log_said: tuple[str, ...] = ()

    @property
    def groups(self) -> int:
        """How many groups of load there are."""
        return int(self.group.max()) + 1 if self.group.size else 0

    @property
    def replicas(self) -> int:
        """The usual number of replicas."""
        import numpy as np

        return max(1, round(float(np.median(self.alive[self.alive > 0])))) if (self.alive > 0).any() else 0

    @property
    def requests(self) -> float:
        """Requests that came."""
        return float((self.per_s * self.alive).sum() * self.bin_s)

    @property
    def running(self) -> NDArray[np.float64]:
        """Requests at work at the end of each step; shape (n,), NaN where not known."""
        return self.steps.gauge("running")[:, 1]

    @property
    def waiting(self) -> NDArray[np.float64]:
        """Requests that waited at the end of each step; likewise."""
        return self.steps.gauge("waiting")[:, 1]

    @property
    def most_in_flight(self) -> float:
        """The most requests that any scrape saw on a replica, waiting ones among them; 0 without gauges."""
        import numpy as np

        there = self.running + np.nan_to_num(self.waiting)
        return float(there[np.isfinite(there)].max(initial=0.0))

    def busiest(self, over_s: float = 300.0) -> float:
        """The most requests that a replica had on the mean over so long, waiting ones among them; 0 without gauges."""
        import numpy as np

        there = (self.running + np.nan_to_num(self.waiting)) * self.steps.length_s
        most = 0.0
        for number in range(len(self.steps.replicas)):
            own = (self.steps.replica == number) & np.isfinite(there)
            if not own.any():
                continue
            end_s = self.steps.end_ns[own] / 1e9
            sums = np.concatenate([[0.0], np.cumsum(there[own])])
            spent = np.concatenate([[0.0], np.cumsum(self.steps.length_s[own])])
            first = np.searchsorted(end_s, end_s - over_s, "right")
            last = np.arange(1, end_s.size + 1)
            # The first windows are shorter, and count where there is nothing longer.
            long = (last - first) * self.bin_s >= min(0.9 * over_s, 0.9 * (end_s[-1] - end_s[0]))
            means = (sums[last] - sums[first]) / np.maximum(spent[last] - spent[first], 1e-9)
            most = max(most, float(means[long].max(initial=0.0)))
        return most

    def mean(self, name: str) -> NDArray[np.float64]:
        """Mean of a histogram's observations in each group, NaN without any; shape (groups,)."""
        import numpy as np

        count = self.sums(f"{name}_count")
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(self.sums(f"{name}_sum") / np.where(count > 0, count, np.nan))

    def sums(self, name: str) -> NDArray[np.float64]:
        """What a counter rose by in the steps of each group; shape (groups,)."""
        return sums_by(self.of_step, self.steps.rise(name), self.groups)

    def seconds(self) -> NDArray[np.float64]:
        """Seconds of replicas in the steps of each group; shape (groups,)."""
        return sums_by(self.of_step, self.steps.length_s, self.groups)


def sums_by(group: NDArray[np.int64], values: NDArray[np.float64], groups: int) -> NDArray[np.float64]:
    """Sums of what is known by group; shape (groups,)."""
    import numpy as np

    return np.asarray(np.bincount(group, weights=np.nan_to_num(values), minlength=groups), dtype=np.float64)


def read_production(frame: pl.DataFrame | pl.LazyFrame, log: AccessLog | None = None) -> Production:
    """Production from its samples.

    Args:
        frame: samples, with the columns of ``gpusize.records.series.series_schema``.
        log: the access log of the same time.
    """
    import numpy as np

    steps = steps_of(frame, gauges=GAUGES, counters=COUNTERS, histograms=HISTOGRAMS)
    if not len(steps):
        nothing = np.empty(0)
        return Production(steps, 0, 15.0, nothing, nothing, np.empty(0, np.int64), np.empty(0, np.int64), log)
    log, said = (None, ()) if log is None else matching_log(log, steps)
    bin_s, begin_ns = steps.interval_s, int(steps.begin_ns.min())
    begin_s, end_s = (steps.begin_ns - begin_ns) / 1e9, (steps.end_ns - begin_ns) / 1e9
    bins = int(np.ceil(end_s.max() / bin_s))
    came = _came(steps)
    known = np.isfinite(came)
    alive = _spread(begin_s[known], end_s[known], end_s[known] - begin_s[known], bins, bin_s)
    total = _spread(begin_s[known], end_s[known], came[known], bins, bin_s)
    there = alive > 0.02 * bin_s
    if not there.any():
        per_s = np.zeros(bins)
    else:
        per_s = np.where(there, total / np.maximum(alive, 1e-9), np.nan)
        per_s = np.interp(np.arange(bins), np.flatnonzero(there), per_s[there])
    group = _groups(per_s, alive)
    middle = np.clip(((begin_s + end_s) / 2 / bin_s).astype(np.int64), 0, bins - 1)
    return Production(steps, begin_ns, bin_s, alive / bin_s, per_s, group, group[middle], log, said)


def _came(steps: Steps) -> NDArray[np.float64]:
    """Requests that came in each step: those that ended, and those more that are there. Shape (n,)."""
    import numpy as np

    ended = steps.rise("requests")
    ended = np.where(np.isfinite(ended), ended, steps.rise("request_time_count"))
    there = steps.gauge("running") + np.nan_to_num(steps.gauge("waiting"))
    return np.maximum(0.0, ended + there[:, 1] - there[:, 0])


def _spread(
    begin_s: NDArray[np.float64], end_s: NDArray[np.float64], what: NDArray[np.float64], bins: int, bin_s: float
) -> NDArray[np.float64]:
    """What steps brought, evenly over their time, in bins of one length; shape (bins,)."""
    import numpy as np

    edges = np.arange(bins + 1) * bin_s
    order_b, order_e = np.argsort(begin_s), np.argsort(end_s)
    pace = what / np.maximum(end_s - begin_s, 1e-9)

    def until(at_s: NDArray[np.float64], order: NDArray[np.intp]) -> NDArray[np.float64]:
        """Sum of pace times the time since each moment that has passed, at the edges."""
        counts = np.searchsorted(at_s[order], edges, "right")
        paces = np.concatenate([[0.0], np.cumsum(pace[order])])[counts]
        starts = np.concatenate([[0.0], np.cumsum((pace * at_s)[order])])[counts]
        return np.asarray(paces * edges - starts)

    return np.asarray(np.maximum(0.0, np.diff(until(begin_s, order_b) - until(end_s, order_e))))


def _groups(per_s: NDArray[np.float64], alive: NDArray[np.float64]) -> NDArray[np.int64]:
    """Groups of bins by the smoothed load on a replica, with about as many requests as ``EDGES`` says each."""
    import numpy as np

    width = min(SMOOTH, per_s.size)
    kernel = np.ones(width)
    smooth = np.convolve(per_s, kernel, "same") / np.convolve(np.ones(per_s.size), kernel, "same")
    order = np.argsort(smooth, kind="stable")
    weight = np.cumsum((per_s * alive)[order])
    share = weight / weight[-1] if weight.size and weight[-1] > 0 else np.linspace(0, 1, per_s.size)
    group = np.empty(per_s.size, np.int64)
    group[order] = np.clip(np.searchsorted(EDGES[1:-1], share, "left"), 0, len(EDGES) - 2)
    # Without holes: a short time has fewer groups.
    return np.asarray(np.unique(group, return_inverse=True)[1].astype(np.int64))
