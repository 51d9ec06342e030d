"""Readings in memory: eight bytes per value, as long as their series stay the same."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpusize.observe.metrics.prometheus_text import SeriesKey
from gpusize.observe.metrics.reading import Reading
from gpusize.records.samples import sample_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["ReadingBuffer", "empty_samples", "samples_frame"]


def empty_samples() -> pl.DataFrame:
    """A frame of samples without rows."""
    import polars as pl

    return pl.DataFrame(schema=sample_schema())


def samples_frame(source: str, readings: Iterable[tuple[int, Mapping[SeriesKey, float]]]) -> pl.DataFrame:
    """Samples of one source as a frame; for what comes in one piece."""
    import polars as pl

    rows = [
        (t_ns, source, metric, labels, float(value))
        for t_ns, values in readings
        for (metric, labels), value in values.items()
    ]
    return pl.DataFrame(rows, schema=sample_schema(), orient="row")


@dataclass(slots=True)
class _Kept:
    t_ns: int
    series: NDArray[np.int32]
    values: NDArray[np.float64]
    written: bool = False


@dataclass
class ReadingBuffer:
    """The readings of one source that a level may still need; used by its thread and by the run's.

    Attributes:
        source: name of the source.
    """

    source: str
    _series: dict[SeriesKey, int] = field(default_factory=dict)
    _kept: list[_Kept] = field(default_factory=list)
    _last: tuple[tuple[SeriesKey, ...], NDArray[np.int32]] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, reading: Reading) -> None:
        """Keep a reading. Readings come in the order of their times."""
        import numpy as np

        keys = tuple(reading.values)
        values = np.fromiter(reading.values.values(), np.float64, len(keys))
        with self._lock:
            if self._last is None or self._last[0] != keys:
                ids = [self._series.setdefault(key, len(self._series)) for key in keys]
                self._last = (keys, np.array(ids, np.int32))
            self._kept.append(_Kept(reading.t_ns, self._last[1], values))

    def last_ns(self) -> int | None:
        """Time of the newest reading."""
        with self._lock:
            return self._kept[-1].t_ns if self._kept else None

    def take(self, start_ns: int) -> pl.DataFrame:
        """The readings that belong to a level which began at ``start_ns``, to be written now.

        These are the readings from then on, the last one before (so that counters have a value at the start), and
        every reading that was never taken. The ones from then on stay, because the next level may have begun before
        this one ended; older ones are dropped.

        Returns:
            A frame of samples, in the order of time.
        """
        with self._lock:
            before = [kept.t_ns for kept in self._kept if kept.t_ns <= start_ns]
            from_ns = before[-1] if before else start_ns
            taken = [kept for kept in self._kept if kept.t_ns >= from_ns or not kept.written]
            self._kept = [kept for kept in self._kept if kept.t_ns >= from_ns]
            for kept in taken:
                kept.written = True
            names = list(self._series)
        return self._frame(taken, names)

    def _frame(self, taken: list[_Kept], names: list[SeriesKey]) -> pl.DataFrame:
        import numpy as np
        import polars as pl

        if not taken:
            return empty_samples()
        index = pl.Series(np.concatenate([kept.series for kept in taken]))
        return pl.DataFrame(
            {
                "t_ns": np.repeat([kept.t_ns for kept in taken], [len(kept.series) for kept in taken]),
                "metric": pl.Series([name for name, _ in names], dtype=pl.String).gather(index),
                "labels": pl.Series([labels for _, labels in names], dtype=pl.String).gather(index),
                "value": np.concatenate([kept.values for kept in taken]),
            }
        ).select("t_ns", pl.lit(self.source).alias("source"), "metric", "labels", "value")
