"""A level's requests as the detectors take them: runtimes by when they were due, and a backlog by second."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final

from gpusize.analysis.delivery.intended import is_ramp
from gpusize.analysis.detect import Drift, Growth, Steadiness, answered_behind, drift, growing, steady_from
from gpusize.analysis.metrics import NS_PER_S
from gpusize.records.schema import ANSWERED, OUTCOMES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gpusize.analysis.level import LevelData

__all__ = ["drift_of", "growth_of", "steadiness_of"]

STEPS: Final = (20, 3600)
"""Fewest and most steps that a window is looked at in; of whole seconds where that is between."""


def drift_of(level: LevelData) -> Drift:
    """Whether the runtimes of the steady requests that ended ok drift over the window."""
    why = _unsteady_by_plan(level)
    if why:
        return Drift("not judged", None, None, None, why)
    due_s, runtime_s = _runtimes(level)
    return drift(due_s, runtime_s, *_window_s(level))


def steadiness_of(level: LevelData) -> Steadiness:
    """Whether the window that the rule by residence time found is steady from its start."""
    why = _unsteady_by_plan(level)
    if why:
        return Steadiness("not judged", None, None, why)
    due_s, runtime_s = _runtimes(level)
    return steady_from(due_s, runtime_s, *_window_s(level))


def growth_of(level: LevelData) -> Growth:
    """Whether more was offered to an open loop's target than it answered, from the warm-up to the close."""
    return level.kept.once("growth", lambda: _growth_of(level))


def _growth_of(level: LevelData) -> Growth:
    if level.setting.get("kind") != "open":
        return Growth("not judged", None, None, "a closed loop offers no more than is answered")
    if is_ramp(level.setting):
        return Growth("not judged", None, None, "a ramp: what is in flight rises with the rate")
    start_s, _ = _window_s(level)
    meta = level.meta
    if meta.get("start_ns") is None or meta.get("close_ns") is None:
        return Growth("not judged", None, None, "the time when the level closed is unknown")
    close_s = (meta["close_ns"] - meta["start_ns"]) / NS_PER_S
    if level.sampled > 1:
        return _growth_by_seconds(level, start_s, close_s)
    return _growth_by_rows(level, start_s, close_s)


def _unsteady_by_plan(level: LevelData) -> str:
    setting = level.setting
    if setting.get("passes"):
        return "a level by passes counts its start and its end"
    if is_ramp(setting):
        return "a ramp: no steady state is assumed"
    if setting.get("bursts") or setting.get("process") in ("trace", "plan"):
        return "the load itself changes over time"
    return "" if level.state != "interrupted" else "the level was interrupted"


def _window_s(level: LevelData) -> tuple[float, float]:
    start_ns = int(level.meta.get("start_ns") or 0)
    low, high = level.window()
    return (low - start_ns) / NS_PER_S, (high - start_ns) / NS_PER_S


def _runtimes(level: LevelData) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    import polars as pl

    start_ns = int(level.meta.get("start_ns") or 0)
    rows = level.ok().select(
        (pl.col("due_ns") - start_ns).alias("due"), (pl.col("end_ns") - pl.col("due_ns")).alias("runtime")
    )
    found = rows.drop_nulls().cast(pl.Float64).collect(engine="streaming")
    return found["due"].to_numpy() / NS_PER_S, found["runtime"].to_numpy() / NS_PER_S


def _growth_by_rows(level: LevelData, start_s: float, close_s: float) -> Growth:
    import numpy as np
    import polars as pl

    start_ns = int(level.meta["start_ns"])
    due, end = pl.col("due_ns"), pl.col("end_ns")
    rows = (
        level.requests()
        .select(
            (due - start_ns).alias("due"), (end - start_ns).alias("end"), pl.col("outcome").is_in(ANSWERED).alias("ok")
        )
        .with_columns(pl.col("due", "end").cast(pl.Float64) / NS_PER_S)
        .collect(engine="streaming")
    )
    steps = round(min(max(STEPS[0], math.floor(close_s - start_s)), STEPS[1]))
    if close_s <= start_s or rows.is_empty():
        return Growth("not judged", None, None, "the window has no length")
    edges = np.linspace(start_s, close_s, steps + 1)
    due_s, end_s = rows["due"].to_numpy(), rows["end"].fill_null(np.inf).to_numpy()
    answered = rows["ok"].to_numpy() & np.isfinite(end_s)
    offered, completed = (np.histogram(each, edges)[0] for each in (due_s, end_s[answered]))
    held = np.searchsorted(np.sort(due_s), edges[1:], "right") - np.searchsorted(np.sort(end_s), edges[1:], "right")
    if answered.any() and (end_s[answered] >= close_s).all():
        return answered_behind(int(offered.sum()), close_s - start_s, end_s[answered])
    runtime_s = _medians((end_s - due_s)[answered], end_s[answered], edges)
    step_s = (close_s - start_s) / steps
    return growing(offered, completed, held, step_s=step_s, runtime_s=runtime_s)


def _growth_by_seconds(level: LevelData, start_s: float, close_s: float) -> Growth:
    import numpy as np
    import polars as pl

    if level.seconds is None or close_s <= start_s:
        return Growth("not judged", None, None, "no seconds were kept")
    answered = pl.sum_horizontal(ANSWERED)
    ended = pl.sum_horizontal(OUTCOMES).sum().alias("ended")
    sums = level.seconds.group_by("second").agg(pl.col("due").sum(), answered.sum().alias("answered"), ended)
    whole = math.floor(close_s)
    frame = pl.LazyFrame({"second": np.arange(whole, dtype=np.int64)}).join(sums, on="second", how="left")
    rows = frame.sort("second").collect().fill_null(0)
    held = rows["due"].cum_sum().to_numpy() - rows["ended"].cum_sum().to_numpy()
    low = math.ceil(start_s)
    sample = level.requests().select("due_ns", "end_ns").drop_nulls().collect(engine="streaming")
    end_s = (sample["end_ns"] - int(level.meta["start_ns"])).cast(pl.Float64).to_numpy() / NS_PER_S
    times_s = (sample["end_ns"] - sample["due_ns"]).cast(pl.Float64).to_numpy() / NS_PER_S
    runtime_s = _medians(times_s, end_s, np.arange(low, whole + 1, dtype=float))
    offered, completed = rows["due"].to_numpy()[low:], rows["answered"].to_numpy()[low:]
    if end_s.size and not completed.any():
        return answered_behind(int(offered.sum()), float(whole - low), end_s, level.sampled)
    return growing(offered, completed, held[low:], runtime_s=runtime_s)


def _medians(
    values: NDArray[np.float64], times_s: NDArray[np.float64], edges: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The median of the values between each two edges; nan where there are none."""
    import numpy as np

    order = np.argsort(times_s, kind="stable")
    at = np.searchsorted(times_s[order], edges)
    sorted_values = values[order]
    return np.array(
        [np.median(sorted_values[low:high]) if high > low else np.nan for low, high in itertools.pairwise(at)]
    )
