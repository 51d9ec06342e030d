"""A run over time: what was offered, sent and answered in each moment, and what servers said of their replicas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from gpusize.analysis.delivery.intended import intended_streams, rate_corners
from gpusize.analysis.metrics import NS_PER_S
from gpusize.records.schema import OUTCOMES
from gpusize.report.text import plain_number

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData

__all__ = ["Span", "Timeline", "timeline"]

BINS: Final = (24, 150)
"""Fewest and most bins; between them as many as have ``LEAST_IN_BIN`` requests on average."""
LEAST_IN_BIN: Final = 20
_WIDTHS_S: Final = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200)
READY: Final = (
    "gpusize_sim_replicas",
    "kube_deployment_status_replicas_ready",
    "inference_pool_ready_pods",
    "wva_current_replicas",
)
"""Series that say how many replicas are ready; the first one that was read is shown."""
DESIRED: Final = ("gpusize_sim_replicas_desired", "kube_deployment_spec_replicas", "wva_desired_replicas")


@dataclass(frozen=True, slots=True)
class Span:
    """One level: from when to when, in seconds after the run's start, its name, what was asked for and found.

    ``asked`` holds (time, value) of the corners of what was asked for: requests/s, or requests in flight.
    """

    start_s: float
    end_s: float
    name: str
    open_loop: bool
    asked: tuple[tuple[float, float], ...]
    limited: bool
    delivered: bool | None
    offered_per_s: float
    achieved_per_s: float


@dataclass(slots=True)
class Timeline:
    """A run in bins of ``width_s``; arrays have one value per bin, nan where nothing is known.

    Rates are requests/s, times seconds, ``in_flight`` and ``waiting`` (for a connection) counts at the end of a bin.
    ``replicas`` holds (times, values) by what they are called.
    """

    width_s: float
    offered: NDArray[np.float64]
    achieved: NDArray[np.float64]
    percentiles: dict[str, NDArray[np.float64]]
    in_flight: NDArray[np.float64]
    waiting: NDArray[np.float64]
    spans: list[Span]
    replicas: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]] = field(default_factory=dict)

    @property
    def length_s(self) -> float:
        """Length of the run."""
        return float(self.offered.size * self.width_s)


def timeline(levels: Sequence[LevelData], rows: Mapping[int, Mapping[str, Any]]) -> Timeline | None:
    """The levels of one run over time; None without any request.

    Args:
        levels: visits of one run.
        rows: the summary's rows by visit, for flags and whether each load was delivered.
    """
    known = [level for level in levels if not level.imported and level.meta.get("start_ns") is not None]
    if not known:
        return None
    zero_ns = min(int(level.meta["start_ns"]) for level in known)
    end_s = max(int(level.meta.get("end_ns") or level.meta["start_ns"]) - zero_ns for level in known) / NS_PER_S
    if end_s <= 0:
        return None
    least_s = 1.0 if any(level.sampled > 1 for level in known) else 0.0
    total = sum(sum((level.meta.get("outcomes") or {}).values()) for level in known)
    most = min(max(BINS[0], total / LEAST_IN_BIN), BINS[1])
    width_s = next((w for w in _WIDTHS_S if w >= least_s and end_s / w <= most), _WIDTHS_S[-1])
    made = _empty(math.ceil(end_s / width_s), width_s)
    frames = []
    for level in known:
        frame = _times(level, zero_ns)
        frames.append(frame)
        offered, achieved = _add(made, level, frame, zero_ns)
        made.spans.append(_span(level, zero_ns, rows.get(level.visit, {}), offered, achieved))
    _set_percentiles(made, frames)
    _set_replicas(made, known, zero_ns)
    return made


def _empty(bins: int, width_s: float) -> Timeline:
    import numpy as np

    def zeros() -> NDArray[np.float64]:
        return np.zeros(bins)

    return Timeline(width_s, zeros(), zeros(), {}, zeros(), zeros(), [])


def _times(level: LevelData, zero_ns: int) -> pl.DataFrame:
    import polars as pl

    names = ("due_ns", "sent_ns", "end_ns")
    columns = [((pl.col(name) - zero_ns).cast(pl.Float64) / NS_PER_S).alias(name[:-3]) for name in names]
    return level.requests().select(*columns, (pl.col("outcome") == "ok").alias("ok")).collect(engine="streaming")


def _add(made: Timeline, level: LevelData, frame: pl.DataFrame, zero_ns: int) -> tuple[int, int]:
    """Add a level's requests to the bins; how many were due, and how many of them ended ok."""
    import numpy as np

    if level.sampled > 1 and level.seconds is not None:
        events = _by_second(level, level.seconds, zero_ns)
    else:
        # What has no end of its own, as other tools say of what they cut off, was in flight up to the level's.
        over_s = (int(level.meta.get("end_ns") or level.meta["start_ns"]) - zero_ns) / NS_PER_S
        due, end = frame["due"].to_numpy(), frame["end"].fill_null(over_s).to_numpy()
        sent = frame["sent"].fill_null(np.inf).to_numpy()
        one = np.ones(frame.height)
        # A request that was never sent stops waiting when it ends.
        events = {
            "due": (due, one),
            "ok": (end[frame["ok"].to_numpy()], one[frame["ok"].to_numpy()]),
            "end": (end, one),
            "sent": (np.minimum(sent, end), one),
        }
    sums = {name: _histogram(made, *each) for name, each in events.items()}
    made.offered += sums["due"] / made.width_s
    made.achieved += sums["ok"] / made.width_s
    made.in_flight += np.cumsum(sums["due"]) - np.cumsum(sums["end"])
    made.waiting += np.maximum(0.0, np.cumsum(sums["due"]) - np.cumsum(sums["sent"]))
    return int(events["due"][1].sum()), int(events["ok"][1].sum())


def _by_second(
    level: LevelData, seconds: pl.LazyFrame, zero_ns: int
) -> dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """As the events of rows, from the seconds of a sampled level: each event in the middle of its second."""
    import polars as pl

    ended = pl.sum_horizontal(OUTCOMES).sum().alias("ended")
    rows = seconds.group_by("second").agg(pl.col("due", "sent", "ok", "shed").sum(), ended).collect()
    start_s = (int(level.meta["start_ns"]) - zero_ns) / NS_PER_S
    at = start_s + rows["second"].to_numpy() + 0.5
    left = rows["sent"] + rows["shed"]
    columns = {"due": rows["due"], "ok": rows["ok"], "end": rows["ended"], "sent": left}
    return {name: (at, values.to_numpy().astype(float)) for name, values in columns.items()}


def _histogram(made: Timeline, times_s: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    bins = made.offered.size
    kept = np.isfinite(times_s)
    number = np.clip((times_s[kept] / made.width_s).astype(int), 0, bins - 1)
    return np.bincount(number, weights=weights[kept], minlength=bins).astype(float)


def _set_percentiles(made: Timeline, frames: Sequence[pl.DataFrame]) -> None:
    import numpy as np
    import polars as pl

    every = (
        pl.concat(frames)
        .filter(pl.col("ok"))
        .select(
            (pl.col("due") / made.width_s).floor().cast(pl.Int64).alias("bin"),
            (pl.col("end") - pl.col("due")).alias("x"),
        )
    )
    quantiles = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    found = every.group_by("bin").agg(pl.col("x").quantile(q, "linear").alias(name) for name, q in quantiles.items())
    at = np.clip(found["bin"].to_numpy(), 0, made.offered.size - 1)
    for name in quantiles:
        values = np.full(made.offered.size, np.nan)
        values[at] = found[name].to_numpy()
        made.percentiles[name] = values


def _span(level: LevelData, zero_ns: int, row: Mapping[str, Any], offered: int, achieved: int) -> Span:
    start_ns = int(level.meta["start_ns"])
    close_ns = int(level.meta.get("close_ns") or level.meta.get("end_ns") or start_ns)
    start_s, end_s = (start_ns - zero_ns) / NS_PER_S, (close_ns - zero_ns) / NS_PER_S
    setting = level.setting
    open_loop = setting.get("kind") == "open"
    length_s = max(end_s - start_s, 1e-9)
    corners = rate_corners(setting, length_s) if open_loop else _slots(level, length_s)
    return Span(
        start_s,
        end_s,
        _name(level, open_loop=open_loop),
        open_loop,
        tuple((start_s + x, y) for x, y in corners),
        "generator-limited" in (row.get("flags") or ()),
        row.get("delivered"),
        offered / length_s,
        achieved / length_s,
    )


def _slots(level: LevelData, length_s: float) -> list[tuple[float, float]]:
    """The course of what a closed level asks for: its requests in flight."""
    high = float(level.concurrency or 0)
    low = level.setting.get("from")
    return [(0.0, high if low is None else float(low)), (length_s, high)]


def _name(level: LevelData, *, open_loop: bool) -> str:
    setting, unit = level.setting, "/s" if open_loop else ""
    low, high = (setting.get(name) for name in (("from_rate", "to_rate") if open_loop else ("from", "concurrency")))
    if low is not None and high is not None and low != high:
        return f"{plain_number(low)} → {plain_number(high)}{unit}"
    if setting.get("bursts"):
        between = intended_streams(setting)[0].phases[0].start
        return f"{plain_number(between)}, bursts {plain_number(setting['bursts']['rate'])}/s"
    return f"{plain_number(level.rate if open_loop else level.concurrency)}{unit}"


def _set_replicas(made: Timeline, levels: Sequence[LevelData], zero_ns: int) -> None:
    """Replicas that were ready, and those that were wanted, as far as some source told of them."""
    import polars as pl

    from gpusize.observe.metrics import scan_samples

    folders = [level.folder for level in levels if level.folder is not None and (level.folder / "samples").is_dir()]
    if not folders:
        return
    wanted = [*READY, *DESIRED]
    every = pl.concat([scan_samples(folder) for folder in folders]).filter(pl.col("metric").is_in(wanted)).unique()
    rows = every.group_by("metric", "source", "t_ns").agg(pl.col("value").sum()).sort("t_ns").collect()
    for called, names in (("ready", READY), ("wanted", DESIRED)):
        name = next((each for each in names if rows.filter(pl.col("metric") == each).height), None)
        if name is None:
            continue
        found = rows.filter(pl.col("metric") == name)
        # Several sources may show the same cluster; the first by name is followed.
        found = found.filter(pl.col("source") == found["source"].sort().item(0))
        times_s = (found["t_ns"] - zero_ns).cast(pl.Float64).to_numpy() / NS_PER_S
        made.replicas[called] = (times_s, found["value"].to_numpy())
