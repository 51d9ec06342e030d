"""What is in a folder of pulled series: counts, scrape intervals, gaps, and what was left out, for ``series.json``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from gpusize.observe.series.answer import Dropped
from gpusize.observe.series.definition import Definition
from gpusize.observe.series.folder import SeriesFolder
from gpusize.observe.series.intervals import Interval, joined, without
from gpusize.observe.series.pull import Pulled
from gpusize.records.series import scan_series

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = ["GAP_INTERVALS", "described", "left_out", "missing_of"]

GAP_INTERVALS: Final = 3
"""A name has a gap where no series of it has a sample for longer than so many scrape intervals."""
_NS: Final = 1_000_000


def described(
    folder: SeriesFolder, wanted: Mapping[str, Definition], interval: Interval, step_ms: int
) -> dict[str, dict[str, Any]]:
    """Facts by canonical name, in the order of the definitions.

    Args:
        folder: with its parts.
        wanted: by ``preset/name``.
        interval: that was asked for and that the server had, in ms since 1970: gaps are those in it.
        step_ms: between the times at which expressions are evaluated.
    """
    import polars as pl

    samples = scan_series(folder.path)
    counts = dict(samples.group_by("name").agg(pl.len()).collect().iter_rows())
    found: dict[str, dict[str, Any]] = {}
    for key, each in wanted.items():
        asked = next((part.asked[key] for part in folder.parts if key in part.asked), None)
        for name, kind, unit in _names(each):
            if name in found:
                found[name]["presets"].append(key.partition("/")[0])
                found[name]["queries"] += [] if asked is None else [asked]
                continue
            found[name] = {
                "kind": kind,
                "unit": unit,
                "means": each.means,
                "across": each.across,
                "by": list(each.by),
                "presets": [key.partition("/")[0]],
                "queries": [] if asked is None else [asked],
                **_counts(
                    samples, name, counts.get(name, 0), interval, step_ms * _NS if each.promql is not None else None
                ),
            }
    usual = sorted(facts["interval_s"] for facts in found.values() if facts["interval_s"] is not None)
    for name, facts in found.items():
        if usual and facts["samples"] and facts["interval_s"] is None:
            # One scrape tells no interval: that of the others.
            facts.update(
                _counts(samples, name, counts[name], interval, round(usual[len(usual) // 2] * 1e9)), interval_s=None
            )
    dropped = left_out(folder)
    for name, facts in found.items():
        facts["dropped"] = dropped.get(name, [])
    return found


def _names(each: Definition) -> Iterator[tuple[str, str, str]]:
    yield each.name, each.kind, each.unit
    if each.kind == "histogram":
        yield f"{each.name}_sum", "counter", each.unit
        yield f"{each.name}_count", "counter", "observations"


def _counts(samples: pl.LazyFrame, name: str, n: int, interval: Interval, spacing_ns: int | None) -> dict[str, Any]:
    import polars as pl

    # Most names of a preset are nowhere: parts are read for those that are.
    mine = (samples if n else samples.clear()).filter(pl.col("name") == name)
    # One row of each scrape: of a histogram that of the last bucket, of which there is always one.
    once = mine.filter(pl.col("le").is_null() | pl.col("le").is_infinite())
    rows = once.select("t_ns", pl.col("labels").cast(pl.Categorical).to_physical().alias("labels")).collect()
    if spacing_ns is None and rows.height > 1:
        spaces = rows.sort("labels", "t_ns").with_columns(pl.col("t_ns").diff().over("labels").alias("d"))
        median = spaces.filter(pl.col("d") > 0)["d"].median()
        spacing_ns = None if median is None else round(float(median))  # type: ignore[arg-type]
    times = rows["t_ns"].unique().sort().to_numpy()
    return {
        "series": rows["labels"].n_unique(),
        "samples": n,
        "interval_s": None if spacing_ns is None else spacing_ns / 1e9,
        "first_ns": int(times[0]) if times.size else None,
        "last_ns": int(times[-1]) if times.size else None,
        "gaps": _gaps(times, (interval[0] * _NS, interval[1] * _NS), spacing_ns),
    }


def _gaps(times: NDArray[np.int64], interval: Interval, spacing_ns: int | None) -> list[list[int]]:
    """From the sample before to the one behind; where there is none, from or to the end of what was asked for."""
    import numpy as np

    low, high = interval
    inside = times[(times > low) & (times <= high)]
    if not inside.size:
        return [[low, high]]
    edges = np.concatenate([[low], inside, [high]])
    long = np.flatnonzero(np.diff(edges) > GAP_INTERVALS * (spacing_ns or 0))
    return [[int(edges[at]), int(edges[at + 1])] for at in long]


def left_out(folder: SeriesFolder) -> dict[str, list[dict[str, Any]]]:
    """Samples that were left out, by canonical name: of which series, how many, and why."""
    sums: dict[Dropped, int] = {}
    for part in folder.parts:
        for what, n in part.dropped.items():
            sums[what] = sums.get(what, 0) + n
    found: dict[str, list[dict[str, Any]]] = {}
    for (name, series, why), n in sorted(sums.items()):
        found.setdefault(name, []).append({"series": series, "samples": n, "why": why})
    return found


def missing_of(
    folder: SeriesFolder,
    wanted: Mapping[str, Definition],
    asked: Mapping[str, str],
    interval: Interval,
    pulled: Pulled,
) -> list[dict[str, Any]]:
    """What was asked for and is not there: names, from when to when, in ns, and why.

    Args:
        folder: with its parts.
        wanted: by ``preset/name``.
        asked: how each was asked for, likewise.
        interval: all of what was asked for, the time behind the server's clock too.
        pulled: how that went.
    """
    late = without([interval], [(interval[0], pulled.until_ms)])
    groups: dict[tuple[Interval, str], list[str]] = {}
    for key, each in wanted.items():
        left = without([interval], folder.covered(key, asked[key]))
        for why in dict.fromkeys(each.why for each in pulled.failed):
            lost = joined(one.interval for one in pulled.failed if one.why == why and key in one.keys)
            for piece in joined(without(left, without([interval], lost))):
                groups.setdefault((piece, why), []).append(each.name)
            left = without(left, lost)
        early = without(left, late)
        for piece in early:
            groups.setdefault((piece, "the pull was interrupted"), []).append(each.name)
        for piece in without(left, early):
            groups.setdefault((piece, "the server's clock is not there yet"), []).append(each.name)
    return [
        {"names": sorted(set(names)), "from_ns": low * _NS, "to_ns": high * _NS, "why": why}
        for ((low, high), why), names in sorted(groups.items())
    ]
