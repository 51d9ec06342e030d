"""A KServe server's own statistics as a source of samples: `targets.kserve.stats` reads them, this samples them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from gpusize.base.clock import MACHINE, Clock
from gpusize.base.errors import GpusizeError
from gpusize.observe.metrics.gpus_and_replicas import STATISTICS
from gpusize.observe.metrics.prometheus_text import SeriesKey, canonical_labels, parse_labels
from gpusize.observe.metrics.reading import Reading, SourceFailed

if TYPE_CHECKING:
    import polars as pl

__all__ = ["CounterReader", "StatisticsSource", "model_stats"]

_PREFIX: Final = "kserve_"
_BUSY: Final = f"{_PREFIX}busy_ns"
_PARTS: Final = tuple(f"batch_compute_{part}_ns" for part in ("input", "infer", "output"))


COUNTED_WITHIN_S: Final = 1.0
"""Longest wait for the request before the sweep to be counted; one that went elsewhere never is."""

COUNTED_STEP_S: Final = 0.02
_ENDED: Final = (f"{_PREFIX}success_count", f"{_PREFIX}fail_count")


class CounterReader(Protocol):
    """Reads a server's counters.

    Attributes:
        notes: why it gives none, if it gives none for good.
    """

    notes: list[str]

    def read(self) -> Mapping[str, float]:
        """All counters now, by ``name{labels}``; empty, with a note, when the server does not give any."""


class StatisticsSource:
    """A KServe server's statistics, stored under ``kserve_`` and their names.

    To these ``kserve_busy_ns`` is added per model: what its executions took, each counted once.

    Args:
        reader: reads them; used by the sampling thread alone.
        name: whose they are; the column ``source`` has it after ``kserve``.
        clock: when readings are taken, and waits for one.
    """

    def __init__(self, reader: CounterReader, name: str = "statistics", *, clock: Clock = MACHINE) -> None:
        self.name = f"{STATISTICS}{name}"
        self._reader = reader
        self._clock = clock
        self._ended_before: float | None = None

    def note_requests(self) -> None:
        """Note how many requests have ended by now. ``open`` then waits until there is one more.

        Before a sweep one request is sent. Servers count a request after they have answered it, and one that is
        counted late would be the first level's.
        """
        with contextlib.suppress(SourceFailed):
            self._ended_before = _ended(self.read())

    def open(self) -> None:
        """Ask once, or for at most `COUNTED_WITHIN_S` until a request has been counted.

        Raises:
            SourceFailed: the server does not give its statistics.
        """
        until_ns = self._clock.now_ns() + round(COUNTED_WITHIN_S * 1e9)
        ended = _ended(self.read())
        while self._ended_before is not None and ended <= self._ended_before and self._clock.now_ns() < until_ns:
            self._clock.sleep(COUNTED_STEP_S)
            ended = _ended(self.read())

    def read(self) -> Reading:
        """Ask for the counters.

        Raises:
            SourceFailed: they could not be had; for good when the server does not allow it.
        """
        asked_ns = self._clock.now_ns()
        try:
            told = self._reader.read()
        except GpusizeError as problem:
            raise SourceFailed(problem.what) from None
        answered_ns = self._clock.now_ns()
        if not told and self._reader.notes:
            raise SourceFailed(self._reader.notes[-1], final=True)
        return Reading((asked_ns + answered_ns) // 2, answered_ns - asked_ns, _with_busy(told))

    def notes(self) -> list[str]:
        """That the server does not give its statistics, if so."""
        return list(self._reader.notes)

    def close(self) -> None:
        """Close the reader, if it can be closed."""
        close = getattr(self._reader, "close", None)
        if close is not None:
            close()


def _ended(reading: Reading) -> float:
    return sum(value for (name, _), value in reading.values.items() if name in _ENDED)


def _with_busy(told: Mapping[str, float]) -> dict[SeriesKey, float]:
    values: dict[SeriesKey, float] = {}
    for key, value in told.items():
        name, _, labels = key.removesuffix("}").partition("{")
        values[f"{_PREFIX}{name}", labels] = value
        if name in _PARTS:
            model = {label: text for label, text in (parse_labels(labels) or {}).items() if label != "batch_size"}
            busy = (_BUSY, canonical_labels(model))
            values[busy] = values.get(busy, 0.0) + value
    return values


def model_stats(samples: pl.DataFrame, sources: Sequence[str], start_ns: int, end_ns: int) -> list[dict[str, Any]]:
    """What each model did in a level, from the readings nearest to its ends.

    Of a level that starts or ends with nothing in flight these are the ones just before and just after it, and
    nothing is missed or counted twice. Where levels take over from each other the first one within the level is
    nearer than the last regular one before it.

    Args:
        samples: of the level.
        sources: names of the statistics sources among them.
        start_ns: start of the level.
        end_ns: its end.

    Returns:
        Per model the fields of `targets.kserve.stats.ModelStats`, and ``source``. A source without two readings has
        no rows.
    """
    import polars as pl

    from gpusize.targets.kserve.stats import between

    rows: list[dict[str, Any]] = []
    t_ns = pl.col("t_ns")
    for source in sources:
        own = samples.filter((pl.col("source") == source) & pl.col("metric").str.starts_with(_PREFIX))
        times = own["t_ns"].unique()
        first, last = (_nearest(times, at) for at in (start_ns, end_ns))
        if first != last:
            pair = [_told(own.filter(t_ns == at)) for at in (first, last)]
            rows += [{**stats.facts(), "source": source} for stats in between(pair[0], pair[1])]
    return rows


def _nearest(times: pl.Series, at_ns: int) -> int | None:
    return min(times, key=lambda t: abs(t - at_ns), default=None)


def _told(reading: pl.DataFrame) -> dict[str, float]:
    """A stored reading as its reader gave it."""
    rows = reading.select("metric", "labels", "value").iter_rows()
    return {f"{metric.removeprefix(_PREFIX)}{{{labels}}}": value for metric, labels, value in rows if metric != _BUSY}
