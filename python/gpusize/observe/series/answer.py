"""From a server's answer to samples: names to what they say, histograms to cumulative buckets, doubles left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gpusize.base.text import shown
from gpusize.observe.series.ask import Refused
from gpusize.observe.series.definition import Definition, Said
from gpusize.observe.series.native import cumulative
from gpusize.records.series import labels_text, series_schema

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["Dropped", "Samples", "samples_of"]

TARGET: Final = ("cluster", "prometheus", "job", "instance")
"""Labels that say which page of which target a sample was scraped from."""
REPLICA: Final = ("prometheus_replica", "__replica__")
"""Labels that tell two Prometheus apart that scrape the same."""
_NOT_A_NUMBER: Final = "not a number"


class Dropped(NamedTuple):
    """Samples that were left out: of which series, and why."""

    name: str
    series: str
    why: str


@dataclass(slots=True)
class Samples:
    """What an answer holds.

    Attributes:
        frame: the samples, with the columns of `series_schema`, by name, labels, bound and time.
        dropped: how many were left out.
    """

    frame: pl.DataFrame
    dropped: dict[Dropped, int] = field(default_factory=dict)


class _Row(NamedTuple):
    """One series as it came: what it says, where it is from, and its samples."""

    name: str
    said: Said
    target: str
    replica: str
    labels: str
    le: float | None
    t_ms: NDArray[np.int64]
    values: NDArray[np.float64]


def samples_of(data: Any, wanted: Sequence[Definition], from_ms: int) -> Samples:
    """The samples of a range selector's answer, or of ``query_range``'s.

    Args:
        data: the answer's ``data``.
        wanted: what was asked for; one with ``promql`` alone takes every series.
        from_ms: samples at this time or before are the chunk's before.

    Raises:
        Refused: it is something else than series.
    """
    matrix = data.get("result") if isinstance(data, Mapping) and data.get("resultType") == "matrix" else None
    if not isinstance(matrix, list) or not all(_is_series(each) for each in matrix):
        raise Refused("it answered with something else than series")
    dropped: dict[Dropped, int] = {}
    by_series = {said.metric: (each, said) for each in wanted for said in each.said()}
    own = next((each for each in wanted if each.promql is not None), None)
    rows: list[_Row] = []
    for series in matrix:
        labels = {str(name): str(text) for name, text in series["metric"].items()}
        metric = labels.pop("__name__", "")
        found = by_series.get(metric)
        if own is not None:
            found = (own, Said(metric, 0, "value", 1.0))
        if found is not None:
            rows += _rows(series, labels, *found, from_ms, dropped)
    return Samples(_once(rows, dropped), dropped)


def _is_series(each: Any) -> bool:
    plain = isinstance(each, dict) and isinstance(each.get("metric"), dict)
    return plain and all(isinstance(each.get(name, []), list) for name in ("values", "histograms"))


def _rows(
    series: Mapping[str, Any],
    labels: dict[str, str],
    each: Definition,
    said: Said,
    from_ms: int,
    dropped: dict[Dropped, int],
) -> Iterable[_Row]:
    bound = _bound(labels.pop("le", None) if said.role == "bucket" else None)
    target = labels_text({name: labels[name] for name in TARGET if name in labels})
    replica = labels_text({name: labels.pop(name) for name in REPLICA if name in labels})
    text = labels_text(labels)
    name = each.name if said.role in ("value", "bucket", "native") else f"{each.name}_{said.role}"
    if series.get("values") and not (said.role == "bucket" and bound is None):
        scale = 1.0 if said.role in ("bucket", "count") else said.scale
        times, values = _floats(series["values"], from_ms)
        good = ~_nan(values)
        if not good.all():
            _count(dropped, Dropped(each.name, said.metric, _NOT_A_NUMBER), int((~good).sum()))
        le = None if bound is None else bound * said.scale
        yield _Row(name, said, target, replica, text, le, times[good], values[good] * scale)
    if series.get("histograms"):
        for role, le, times, values in cumulative(series["histograms"], from_ms, said.scale):
            named = each.name if role == "bucket" else f"{each.name}_{role}"
            yield _Row(named, said, target, replica, text, le, times, values)


def _bound(text: str | None) -> float | None:
    try:
        bound = None if text is None else float(text)
    except ValueError:
        return None
    return None if bound is None or math.isnan(bound) else bound


def _floats(points: Sequence[Any], from_ms: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    import numpy as np

    try:
        seconds = np.array([point[0] for point in points], np.float64)
        values = np.array([_value(point[1]) for point in points], np.float64)
    except (TypeError, ValueError, IndexError, KeyError):
        raise Refused(f"it answered with samples that are none: {shown(points[0])}") from None
    # To the millisecond, which is what it stores: the JSON numbers are seconds with three decimals.
    times = np.rint(seconds * 1e3).astype(np.int64)
    new = times > from_ms
    return times[new], values[new]


def _value(text: Any) -> float:
    """A value; what is no number at all, such as ``<unknown>``, is as good as NaN: nothing was known, and not 0."""
    if not isinstance(text, str):
        raise TypeError
    try:
        return float(text)
    except ValueError:
        return math.nan


def _nan(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    import numpy as np

    return np.isnan(values)


def _count(dropped: dict[Dropped, int], what: Dropped, n: int) -> None:
    dropped[what] = dropped.get(what, 0) + n


def _once(rows: list[_Row], dropped: dict[Dropped, int]) -> pl.DataFrame:
    """One frame in which each scrape of a target says each thing once."""
    import numpy as np
    import polars as pl

    rows = [row for row in rows if row.t_ms.size]
    if not rows:
        return pl.DataFrame(schema=series_schema())
    about = pl.DataFrame(
        {
            "row": range(len(rows)),
            "name": [row.name for row in rows],
            "rank": [row.said.rank for row in rows],
            "series": [row.said.metric for row in rows],
            "target": [row.target for row in rows],
            "replica": [row.replica for row in rows],
            "labels": [row.labels for row in rows],
            "le": [row.le for row in rows],
        },
        schema_overrides={"row": pl.UInt32, "rank": pl.Int32, "le": pl.Float64},
    )
    frame = pl.DataFrame(
        {
            "row": np.repeat(np.arange(len(rows), dtype=np.uint32), [row.t_ms.size for row in rows]),
            "t_ms": np.concatenate([row.t_ms for row in rows]),
            "value": np.concatenate([row.values for row in rows]),
        }
    ).join(about, on="row", how="left")
    frame = _one_replica(frame, about, dropped)
    frame = _one_name(frame, about, dropped)
    return frame.select(
        pl.col("t_ms").cast(pl.Int64).mul(1_000_000).alias("t_ns"), "name", "labels", "le", "value"
    ).sort("name", "labels", "le", "t_ns")


def _one_replica(frame: pl.DataFrame, about: pl.DataFrame, dropped: dict[Dropped, int]) -> pl.DataFrame:
    """Of two Prometheus that scrape the same, what the one with more samples has, series by series."""
    import polars as pl

    if about["replica"].n_unique() == 1:
        return frame
    key = ["series", "labels", "le"]
    most = (
        frame.group_by(*key, "replica")
        .agg(pl.len().alias("n"))
        .sort("n", "replica", descending=[True, False])
        .group_by(key, maintain_order=True)
        .agg(pl.col("replica").first().alias("kept"))
    )
    frame = frame.join(most, on=key, how="left", nulls_equal=True)
    return _kept(frame, pl.col("replica") == pl.col("kept"), "another Prometheus has the same", dropped).drop("kept")


def _one_name(frame: pl.DataFrame, about: pl.DataFrame, dropped: dict[Dropped, int]) -> pl.DataFrame:
    """Of several names for one thing in the same scrape of a target, the first: scrapes share their time."""
    import polars as pl

    if about.group_by("name").agg(pl.col("rank").n_unique())["rank"].max() == 1:
        return frame
    best = pl.col("rank").min().over("name", "target", "t_ms")
    return _kept(frame, pl.col("rank") == best, "the same scrape has it under another name", dropped)


def _kept(frame: pl.DataFrame, good: pl.Expr, why: str, dropped: dict[Dropped, int]) -> pl.DataFrame:
    import polars as pl

    frame = frame.with_columns(good.alias("good"))
    for name, series, n in frame.filter(~pl.col("good")).group_by("name", "series").len().sort("series").iter_rows():
        _count(dropped, Dropped(name, series, why), n)
    return frame.filter("good").drop("good")
