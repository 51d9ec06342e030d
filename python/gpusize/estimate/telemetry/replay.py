"""The day that was scraped, again on simulated replicas: what came when it came, lengths as they are known."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpusize.engine.session import core
from gpusize.estimate.telemetry.production import sums_by

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.estimate.telemetry.production import Production
    from gpusize.estimate.twin.simulate import Batching

__all__ = ["Day", "Replayed"]

MOST: Final = 40_000
"""Requests of a replay: of a cluster that had more, fewer replicas are replayed with their part of the load."""
WARMUP_S: Final = 900.0


class Day:
    """When requests come to how many replicas in a replay, and in which group of load each time lies.

    Args:
        production: what was scraped.
        router: which replica a request goes to.
        seed: of the moments inside a bin.
    """

    def __init__(self, production: Production, router: str, *, seed: int = 1, most: int = MOST) -> None:
        import numpy as np

        self._router, self._seed = router, seed
        self._group, self._bin_s = production.group, production.bin_s
        self.groups = production.groups
        bins = production.per_s.size
        each = float(production.per_s.sum()) * self._bin_s
        self.replicas = int(np.clip(most // max(1.0, each), 1, production.replicas))
        # One long request more or less at the begin must not show: the first load comes for a while before.
        before = round(min(WARMUP_S, bins * self._bin_s) / self._bin_s)
        load = np.concatenate([np.full(before, production.per_s[:SMOOTHED].mean()), production.per_s]) * self.replicas
        whole = np.diff(np.floor(np.concatenate([[0.0], np.cumsum(load * self._bin_s)]) + 0.5)).astype(np.int64)
        rng = np.random.default_rng(seed)
        bin_of = np.repeat(np.arange(whole.size), whole)
        due_s = np.sort((bin_of + rng.random(bin_of.size)) * self._bin_s)
        self._before_s = before * self._bin_s
        self._due = np.round(due_s * 1e9).astype("<i8")

    @property
    def requests(self) -> int:
        """Requests of a replay, those before its begin among them."""
        return int(self._due.size)

    def run(self, replica: Batching) -> Replayed:
        """The day on so many of a replica."""
        import numpy as np
        import polars as pl

        config = replica.cluster(self.replicas, self._router, self._seed)
        stream, _ = core().simulate(
            json.dumps(config),
            json.dumps({"arrivals": "plan"}),
            due=self._due.tobytes(),
            prompt_tokens=replica.prompt_tokens.tobytes(),
            output_tokens=replica.output_tokens.tobytes(),
            resample=True,
        )
        rows = pl.DataFrame(stream).filter(pl.col("end_ns").is_not_null())
        due, start, first, end = (
            rows[name].to_numpy() / 1e9 - self._before_s for name in ("due_ns", "start_ns", "first_token_ns", "end_ns")
        )
        prompt, output = (rows[name].to_numpy().astype(np.float64) for name in ("prompt_tokens", "tokens_out"))
        return Replayed(due, start, first, end, prompt, output, self)

    def seconds(self) -> NDArray[np.float64]:
        """Length of the bins of each group; shape (groups,)."""
        import numpy as np

        return np.asarray(np.bincount(self._group, minlength=self.groups) * self._bin_s)

    def group_at(self, at_s: NDArray[np.float64]) -> NDArray[np.int64]:
        """Group of each moment, -1 before the begin and after the end; shape (m,)."""
        import numpy as np

        place = np.floor(at_s / self._bin_s).astype(np.int64)
        inside = (place >= 0) & (place < self._group.size)
        return np.where(inside, self._group[np.clip(place, 0, self._group.size - 1)], -1)


SMOOTHED: Final = 9
"""Bins at the begin whose mean load comes before it."""


@dataclass(frozen=True, eq=False)
class Replayed:
    """Requests of a replay that ended; times in s from the day's begin, shape (m,) each."""

    due_s: NDArray[np.float64]
    start_s: NDArray[np.float64]
    first_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    prompt: NDArray[np.float64]
    output: NDArray[np.float64]
    day: Day

    @cached_property
    def at_first(self) -> NDArray[np.int64]:
        """Group of load of each first token."""
        return self.day.group_at(self.first_s)

    @cached_property
    def at_end(self) -> NDArray[np.int64]:
        """Group of load of each end."""
        return self.day.group_at(self.end_s)

    def requests(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Tokens of answer and prompt, runtime and group of each request; shapes (m,)."""
        return self.output, self.prompt, self.end_s - self.due_s, self.at_end

    def values(self, metric: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """A time of each request, NaN where it has none, and the group in which a server would tell it."""
        import numpy as np

        if metric == "ttft":
            return self.first_s - self.due_s, self.at_first
        if metric == "itl_mean":
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where(self.output > 1, (self.end_s - self.first_s) / (self.output - 1), np.nan), self.at_end
        if metric == "queue_time":
            return self.start_s - self.due_s, self.at_end
        return self.end_s - self.due_s, self.at_end

    def per_s(self) -> NDArray[np.float64]:
        """Requests that ended per second and replica in each group; shape (groups,)."""
        import numpy as np

        count = np.bincount(self.at_end[self.at_end >= 0], minlength=self.day.groups)
        return np.asarray(count / (self.day.seconds() * self.day.replicas))

    def step_s(self) -> NDArray[np.float64]:
        """Mean time between tokens in each group; shape (groups,), NaN without any."""
        import numpy as np

        # Tokens come all along an answer: it counts in the group of its middle.
        middle = self.day.group_at((self.first_s + self.end_s) / 2)
        inside = middle >= 0
        took = sums_by(middle[inside], (self.end_s - self.first_s)[inside], self.day.groups)
        gaps = sums_by(middle[inside], (self.output - 1)[inside], self.day.groups)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(gaps > 0, took / gaps, np.nan))

    def mean(self, metric: str) -> NDArray[np.float64]:
        """Mean of a time in each group; shape (groups,), NaN without any."""
        import numpy as np

        values, group = self.values(metric)
        known = np.isfinite(values) & (group >= 0)
        total = sums_by(group[known], values[known], self.day.groups)
        count = np.bincount(group[known], minlength=self.day.groups)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.where(count > 0, total / count, np.nan))
