"""When the requests of a level were due and sent: from its records, or from its histograms and seconds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpusize.analysis.metrics import NS_PER_S

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData

__all__ = ["SentRequests", "sent_requests"]

_NAMES: Final = ("stream", "turn", "due_ns", "fired_ns", "sent_ns")


@dataclass(frozen=True)
class SentRequests:
    """The requests of one visit, or of one of its streams, that were sent; times in seconds after the level's start.

    Of a level in sessions only their first turns: when the others go is the answers' doing.

    Attributes:
        stream: number of each request's stream, shape (n,).
        due_s: when each was due, shape (n,).
        fired_s: when the pacer let it go, shape (n,).
        sent_s: when it was sent, shape (n,).
        length_s: length of the schedule that ran.
        sampled: 1, or n where 1 in n rows was kept.
        level: the visit; of sampled ones it has the rest.
        only: the stream that is looked at; None for all.
    """

    stream: NDArray[np.int64]
    due_s: NDArray[np.float64]
    fired_s: NDArray[np.float64]
    sent_s: NDArray[np.float64]
    length_s: float
    sampled: int
    level: LevelData
    only: int | None = None

    def of(self, stream: int | None) -> SentRequests:
        """The requests of one stream; all of them for None."""
        if stream is None:
            return self
        kept = self.stream == stream
        times = (self.due_s[kept], self.fired_s[kept], self.sent_s[kept])
        return SentRequests(self.stream[kept], *times, self.length_s, self.sampled, self.level, stream)

    @property
    def count(self) -> int:
        """How many were sent, those without a row included."""
        return int(self.per_second.sum()) if self.sampled > 1 else self.sent_s.size

    @property
    def late_s(self) -> NDArray[np.float64]:
        """Sent - due of each row."""
        return self.sent_s - self.due_s

    @cached_property
    def late_p99_s(self) -> float | None:
        """99th percentile of sent - due."""
        return self._p99("lateness", self.late_s)

    @cached_property
    def pacer_p99_s(self) -> float | None:
        """99th percentile of fired - due: the generator's own share."""
        return self._p99("pacer_late", self.fired_s - self.due_s)

    @cached_property
    def waited_p99_s(self) -> float | None:
        """99th percentile of sent - fired: the wait for a free connection."""
        return self._p99("no_connection", self.sent_s - self.fired_s)

    @cached_property
    def per_second(self) -> NDArray[np.float64]:
        """Requests sent in each second after the start, of all requests; empty where no seconds were kept."""
        import numpy as np
        import polars as pl

        if self.level.seconds is None:
            return np.zeros(0)
        frame = self.level.seconds if self.only is None else self.level.seconds.filter(pl.col("stream") == self.only)
        rows = frame.group_by("second").agg(pl.col("sent").sum()).collect()
        counts = np.zeros(int(rows["second"].to_numpy().max()) + 1 if rows.height else 0)
        counts[rows["second"].to_numpy()] = rows["sent"].to_numpy()
        return counts

    def _p99(self, name: str, values: NDArray[np.float64]) -> float | None:
        import numpy as np

        if self.sampled > 1:
            from gpusize.analysis.histograms import histogram_quantiles

            found = histogram_quantiles(self.level, name, [0.99], steady=False, stream=self.only)[0]
            if found is not None:
                return found
        known = values[np.isfinite(values)]
        return float(np.quantile(known, 0.99)) if known.size else None


def sent_requests(level: LevelData) -> SentRequests:
    """The requests of a single visit that were sent."""
    import polars as pl

    frame = level.requests().filter(pl.col("sent_ns").is_not_null())
    if level.setting.get("unit") == "session":
        frame = frame.filter(pl.col("turn").fill_null(0) == 0)
    rows = frame.select(_NAMES).collect(engine="streaming")
    start_ns = level.meta.get("start_ns")
    if start_ns is None:
        first = level.requests().select(pl.col("due_ns").min()).collect(engine="streaming").item()
        start_ns = first or 0
    due_s, fired_s, sent_s = (
        (rows[name].cast(pl.Int64) - start_ns).cast(pl.Float64).to_numpy() / NS_PER_S for name in _NAMES[2:]
    )
    close_ns = level.meta.get("close_ns") or level.meta.get("end_ns")
    length_s = (close_ns - start_ns) / NS_PER_S if close_ns else float(due_s.max()) if due_s.size else 0.0
    return SentRequests(
        rows["stream"].cast(pl.Int64).to_numpy(), due_s, fired_s, sent_s, length_s, level.sampled, level
    )
