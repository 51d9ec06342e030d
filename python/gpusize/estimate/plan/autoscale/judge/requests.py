"""The requests of a run as columns in order of their due times, with sums that any stretch of time is read off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpusize.analysis.metrics import NS_PER_S, metric
from gpusize.base.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import ArrayLike, NDArray

    from gpusize.analysis.level import LevelData
    from gpusize.analysis.slo import Slo

__all__ = ["Counted", "Requests", "over_time_slos", "timed_slo"]


@dataclass(frozen=True, eq=False)
class Counted:
    """How the requests of some stretches of time fared; requests count by when they were due.

    Attributes:
        due: requests that were due; shape (m,).
        judged: of these, those that an SLO judges: all but the cancelled, and those that lack its metric; shape
            (SLOs + 1, m), the last row of all SLOs at once.
        within: of the judged, those within it; one that failed is not; same shape.
    """

    due: NDArray[np.float64]
    judged: NDArray[np.float64]
    within: NDArray[np.float64]

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share within; NaN where nothing was judged: an empty window is no 100 %."""
        import numpy as np

        found: NDArray[np.float64] = np.where(
            self.judged > 0, self.within / np.where(self.judged > 0, self.judged, 1), np.nan
        )
        return found


@dataclass(frozen=True, eq=False)
class Requests:
    """All requests of a run.

    Attributes:
        slos: what they are judged by.
        due_s: seconds after the run's start, ascending; shape (n,).
        sums: cumulated over them with a zero before: due, and judged and within by SLO and of all at once; shape
            (1 + 2 * (SLOs + 1), n + 1).
        end_s: when those that ended ok did, ascending; shape (m,).
        ended: cumulated over those with a zero before: requests, and their output tokens; shape (2, m + 1).
        timed: due times and seconds of those that ended ok, by the metric of ``timed_slo``; shape (2, k).
        tokens_known: whether every request that ended ok says how long its answer is.
    """

    slos: tuple[Slo, ...]
    due_s: NDArray[np.float64]
    sums: NDArray[np.float64]
    end_s: NDArray[np.float64]
    ended: NDArray[np.float64]
    timed: NDArray[np.float64]
    tokens_known: bool

    @classmethod
    def of(cls, levels: Sequence[LevelData], slos: Sequence[Slo], zero_ns: int) -> Requests:
        """Read the levels of one run.

        Raises:
            UsageError: there is no request, or none has the metric of an SLO.
        """
        import numpy as np
        import polars as pl

        frame = pl.concat([_rows(each, slos, zero_ns) for each in levels]).collect(engine="streaming").sort("due_s")
        if frame.is_empty():
            raise UsageError("the run has no requests of its own", None, "judge a run that has records")
        weight = frame["weight"].to_numpy()
        names = [*(f"slo_{k}" for k in range(len(slos))), "all"]
        whole = frame.with_columns(pl.all_horizontal(names[:-1] or [pl.col("ok")]).alias("all"))
        for name, slo in zip(names, slos, strict=False):
            if not whole.select((pl.col("ok") & pl.col(name).is_not_null()).any()).item() and whole["ok"].any():
                what = f'no request of the run has what "{slo}" bounds'
                raise UsageError(what, "slo", "judge by a metric that the requests have, as p95 runtime <= 10s")
        judged = [weight * whole[name].is_not_null().to_numpy() for name in names]
        within = [weight * whole[name].fill_null(value=False).to_numpy() for name in names]
        ok = frame.filter("ok").sort("end_s")
        ended = np.array([ok["weight"], ok["weight"] * ok["tokens_out"].fill_null(0)], float).reshape(2, -1)
        timed = frame.filter(pl.col("timed_s").is_not_null() & pl.col("ok")).select("due_s", "timed_s")
        return cls(
            tuple(slos),
            frame["due_s"].to_numpy(),
            _cumulated(np.array([weight, *judged, *within])),
            ok["end_s"].to_numpy(),
            _cumulated(ended),
            timed.to_numpy().T,
            not ok["tokens_out"].null_count(),
        )

    def between(self, from_s: ArrayLike, until_s: ArrayLike) -> Counted:
        """How the requests fared that were due in stretches of time, half open; shape (m,) each."""
        import numpy as np

        ends = [np.searchsorted(self.due_s, np.asarray(each, float), "left") for each in (from_s, until_s)]
        found = self.sums[:, ends[1]] - self.sums[:, ends[0]]
        n = len(self.slos) + 1
        return Counted(found[0], found[1 : 1 + n], found[1 + n :])

    def ended_between(self, from_s: float, until_s: float) -> tuple[float, float]:
        """Requests that ended ok in a stretch of time, and their output tokens."""
        import numpy as np

        first, last = np.searchsorted(self.end_s, [from_s, until_s], "left")
        requests, tokens = self.ended[:, last] - self.ended[:, first]
        return float(requests), float(tokens)

    def quantiles(self, edges_s: NDArray[np.float64], probs: Sequence[float]) -> NDArray[np.float64]:
        """Quantiles of the timed metric by window, of those that ended ok, in seconds; NaN without any.

        Args:
            edges_s: of the windows, ascending; shape (m + 1,).
            probs: which.

        Returns:
            Shape (len(probs), m).
        """
        import numpy as np
        import polars as pl

        made = np.full((len(probs), edges_s.size - 1), np.nan)
        if not self.timed.shape[1]:
            return made
        place = np.searchsorted(edges_s, self.timed[0], "right") - 1
        frame = pl.DataFrame({"place": place, "x": self.timed[1]}).filter(
            pl.col("place").is_between(0, made.shape[1] - 1)
        )
        asked = [pl.col("x").quantile(prob, "linear").alias(str(k)) for k, prob in enumerate(probs)]
        found = frame.group_by("place").agg(asked)
        for k in range(len(probs)):
            made[k, found["place"].to_numpy()] = found[str(k)].to_numpy()
        return made


def over_time_slos(slos: Sequence[Slo]) -> tuple[Slo, ...]:
    """Those that can be judged in windows: attainment of each request.

    Raises:
        UsageError: one is on a mean.
    """
    for slo in slos:
        if slo.kind == "mean":
            todo = "give a bound on a percentile of what each request has, as in: p95 ttft <= 2s"
            raise UsageError(f'"{slo}" is not judged request by request', "slo", todo)
    return tuple(slos)


def timed_slo(slos: Sequence[Slo]) -> Slo | None:
    """The SLO whose metric is shown over time: the first on a time."""
    return next((each for each in slos if each.bound_s is not None), None)


def _rows(level: LevelData, slos: Sequence[Slo], zero_ns: int) -> pl.LazyFrame:
    """All requests of a level: over time its beginning and its end count as well as its steady part."""
    import polars as pl

    told = [_told(level, slo) for slo in slos]
    timed = timed_slo(told)
    value: Any = pl.lit(None, dtype=pl.Float64) if timed is None else metric(timed.metric).expr().cast(pl.Float64)
    return level.records.select(
        ((pl.col("due_ns") - zero_ns).cast(pl.Float64) / NS_PER_S).alias("due_s"),
        ((pl.col("end_ns") - zero_ns).cast(pl.Float64) / NS_PER_S).alias("end_s"),
        (pl.col("outcome") == "ok").alias("ok"),
        pl.col("tokens_out").cast(pl.Float64),
        pl.lit(float(level.sampled)).alias("weight"),
        value.alias("timed_s"),
        *(slo.within_expr().alias(f"slo_{k}") for k, slo in enumerate(told)),
    )


def _told(level: LevelData, slo: Slo) -> Slo:
    """The SLO in terms of a column of records."""
    if slo.kind == "share":
        return slo
    told = slo if level.knows_calls else slo.of_request(level.nature)
    found = metric(told.metric)
    if found.build is None or found.table != "records" or not level.tells(found):
        what = f'"{slo}" is not known of each request'
        raise UsageError(what, "slo", "give a bound on a time of requests, as in: p95 runtime <= 10s")
    return told


def _cumulated(values: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    return np.concatenate([np.zeros((values.shape[0], 1)), np.cumsum(values, axis=1)], axis=1)
