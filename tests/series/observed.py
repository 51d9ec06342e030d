"""Replicas that observe and are scraped: what a server would have stored, and the raw observations behind it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from gpusize.records.series import labels_text, series_schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["BOUNDS", "Replica", "frame_of", "replica"]

BOUNDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
S = 1_000_000_000


@dataclass(frozen=True)
class Replica:
    """One replica.

    Attributes:
        name: its label.
        at: times of its observations, ns, ascending.
        took: what it observed, s.
        starts: when it began, and began again, at 0, ns.
        scrapes: when it was scraped, ns.
        bounds: of its histogram's buckets, without the infinite one.
    """

    name: str
    at: NDArray[np.int64]
    took: NDArray[np.float64]
    starts: NDArray[np.int64]
    scrapes: NDArray[np.int64]
    bounds: tuple[float, ...]

    def page(self, moment: int) -> NDArray[np.bool_]:
        """Which observations a page shows at a moment: those since it last began."""
        since = self.starts[np.searchsorted(self.starts, moment, "right") - 1]
        found: NDArray[np.bool_] = (self.at > since) & (self.at <= moment)
        return found

    def seen(self, low: int, high: int) -> NDArray[np.bool_]:
        """Which observations the scrapes after one and up to another tell of: those before a restart are lost."""
        found = np.zeros(self.at.size, bool)
        inside = self.scrapes[(self.scrapes >= low) & (self.scrapes <= high)]
        for before, after in itertools.pairwise(inside):
            found |= self.page(int(after)) & ~(self.page(int(before)) & (self._since(before) == self._since(after)))
        return found

    def visible(self) -> Replica:
        """The same without restarts that no scrape shows: after which it had counted as much again before the next."""
        for before, after in itertools.pairwise(self.scrapes):
            low, high = self._since(before), self._since(after)
            if low != high and self.page(int(after)).sum() >= self.page(int(before)).sum():
                return replace(self, starts=np.delete(self.starts, range(low, high))).visible()
        return self

    def _since(self, moment: int) -> int:
        return int(np.searchsorted(self.starts, moment, "right"))


def replica(
    random: np.random.Generator, name: str, *, hours: float = 0.5, bounds: tuple[float, ...] = BOUNDS
) -> Replica:
    """One that lives for some of the time, is busy at random, restarts at times and misses some scrapes."""
    length = round(hours * 3600 * S)
    birth = 0 if random.random() < 0.5 else int(random.integers(0, length // 2))
    death = length if random.random() < 0.5 else int(random.integers(birth + length // 4, length + 1))
    n = int(random.integers(50, 3000))
    at = np.unique(random.integers(birth + 1, death, n))
    took = random.lognormal(-1.5, 1.2, at.size)
    restarts = random.integers(birth + 1, death, int(random.integers(0, 4)))
    starts = np.unique(np.concatenate([[birth], restarts]))
    scrapes = np.arange(birth + int(random.integers(1, 15 * S)), death, 15 * S, dtype=np.int64)
    scrapes += random.integers(0, S // 20, scrapes.size)
    return Replica(name, at, took, starts, scrapes, bounds).visible()


def frame_of(replicas: list[Replica], name: str = "time") -> pl.DataFrame:
    """What was stored: a histogram, and the counter of its observations."""
    rows: dict[str, list] = {column: [] for column in series_schema()}
    for one in replicas:
        labels = labels_text({"pod": one.name})
        for moment in one.scrapes.tolist():
            shown = one.took[one.page(moment)]
            cells = [(bound, float((shown <= bound).sum())) for bound in (*one.bounds, np.inf)]
            for series, le, value in [(name, *cell) for cell in cells] + [(f"{name}_count", None, float(shown.size))]:
                for column, cell in zip(rows, (moment, series, labels, le, value), strict=True):
                    rows[column].append(cell)
    return pl.DataFrame(rows, schema=series_schema())
