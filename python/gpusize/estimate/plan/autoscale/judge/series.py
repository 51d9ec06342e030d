"""Series that were pulled from a monitoring server for a run, read on the run's own clock.

A folder holds ``series.parquet`` (or ``series-*.parquet``) with the columns ``t_ns`` (Unix ns by the server's clock),
``name``, ``labels`` (JSON), ``le`` and ``value``, and ``series.json``, which says how far that clock is from ours.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import StoreError
from gpusize.base.text import shown
from gpusize.estimate.plan.autoscale.judge.track import LATE, Track, added
from gpusize.records.schema import first_line

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.estimate.plan.autoscale.judge.run_clock import RunClock

__all__ = [
    "ABOUT",
    "CACHE",
    "CONDITIONS",
    "CURRENT",
    "DESIRED",
    "FOLDER",
    "GPU_POWER",
    "GPU_USE",
    "READY",
    "REQUESTS",
    "RUNNING",
    "SCALER_ACTIVE",
    "SCALER_ERRORS",
    "SCALER_METRIC",
    "WAITING",
    "PulledSeries",
    "has_series",
]

# The names that are read, in one place; presets of queries give series these names.
DESIRED: Final = "replicas_desired"
CURRENT: Final = "replicas_current"
READY: Final = "replicas_ready"
CONDITIONS: Final = "hpa_condition"
"""Conditions of the HPA; labels ``condition`` and ``status``, 1 for the status that holds."""
RUNNING: Final = "running"
WAITING: Final = "waiting"
CACHE: Final = "cache_usage"
REQUESTS: Final = "requests"
GPU_USE: Final = "gpu_utilization"
GPU_POWER: Final = "gpu_power_w"
SCALER_ERRORS: Final = "keda_scaler_errors"
SCALER_ACTIVE: Final = "keda_scaler_active"
SCALER_METRIC: Final = "keda_scaler_metric"

FOLDER: Final = "series"
"""Of a run folder: where its series lie."""
ABOUT: Final = "series.json"
PARTS: Final = ("series.parquet", "series-*.parquet", "series/*.parquet")
COLUMNS: Final = ("t_ns", "name", "labels", "value")


def has_series(run: Path) -> bool:
    """Whether series were pulled into a run folder."""
    return (run / FOLDER / ABOUT).is_file()


@dataclass(frozen=True, eq=False)
class PulledSeries:
    """Pulled series, on the clock of a run.

    Attributes:
        folder: where they lie.
        about: the contents of ``series.json``.
        files: the Parquet files.
        clock: the run's.
        end_s: where the run ends.
    """

    folder: Path
    about: dict[str, Any]
    files: tuple[Path, ...]
    clock: RunClock
    end_s: float

    @classmethod
    def open(cls, folder: Path, clock: RunClock, end_s: float) -> PulledSeries:
        """The series of a folder.

        Args:
            folder: holds ``series.json`` and the parts.
            clock: of the run that they are of.
            end_s: where the run ends, seconds after its start.

        Raises:
            StoreError: there are none, or they cannot be read.
        """
        todo = "pull them, or name the folder that has them with --series"
        try:
            about = json.loads((folder / ABOUT).read_text("utf-8"))
        except FileNotFoundError:
            raise StoreError(f"no pulled series: there is no {ABOUT}", str(folder), todo) from None
        except (OSError, ValueError) as error:
            raise StoreError(f"unreadable ({first_line(error)})", str(folder / ABOUT), "pull them anew") from None
        files = sorted({file for pattern in PARTS for file in folder.glob(pattern)})
        if not isinstance(about, dict) or not files:
            raise StoreError("no pulled series: there is no Parquet file", str(folder), todo)
        return cls(folder, about, tuple(files), clock, end_s)

    @property
    def offset_ns(self) -> int:
        """How far the server's clock is before ours: a time of the server less this is ours."""
        return int(self._clocks().get("offset_ns") or 0)

    @property
    def uncertainty_s(self) -> float | None:
        """How far off that may be, with what the run's own clocks add; None where nobody measured it."""
        found = self._clocks().get("uncertainty_ns")
        return None if found is None else float(found) / 1e9 + self.clock.uncertainty_s

    def _clocks(self) -> dict[str, Any]:
        found = self.about.get("clock") or self.about.get("offset") or self.about
        return found if isinstance(found, dict) else {}

    def percent_factor(self, name: str, track: Track) -> float:
        """What makes per cent of a share, by its unit; where nobody says that, by whether it was ever above 1."""
        import numpy as np

        told = (self.about.get("series") or self.about.get("names") or self.about).get(name)
        unit = str(told.get("unit") or "") if isinstance(told, dict) else ""
        if unit in ("%", "percent"):
            return 1.0
        known = track.values[~np.isnan(track.values)]
        return 100.0 if unit in ("share", "ratio") or not known.size or known.max() <= 1.0 else 1.0

    def rows(self, name: str) -> pl.LazyFrame:
        """The readings of a name within the run and somewhat around it: ``t_ns``, ``labels``, ``value``."""
        import polars as pl

        frame = pl.scan_parquet(list(self.files), glob=False).filter(pl.col("name") == name)
        # Histograms have their buckets in rows of their own.
        return frame.select("t_ns", "labels", "value")

    def collected(self, query: pl.LazyFrame) -> pl.DataFrame:
        """What a query of ``rows`` gives.

        Raises:
            StoreError: the files cannot be read, or lack a column.
        """
        import polars as pl

        try:
            return query.collect()
        except (OSError, pl.exceptions.PolarsError) as error:
            what = f"unreadable series ({shown(first_line(error), 200)})"
            raise StoreError(what, str(self.folder), f"they need {', '.join(COLUMNS)}: pull them anew") from None

    def at_s(self, t_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Times of the server as seconds after the run's start."""
        return self.clock.at_s(t_ns - self.offset_ns)

    def track(self, name: str) -> Track | None:
        """A gauge of the whole, such as the replicas that are ready; of several label sets the sum. None without any.

        Where a label set has no reading the sum is unknown, but for one that has not begun or is gone.
        """
        import numpy as np

        frame = self.collected(self.rows(name).sort("labels", "t_ns"))
        if frame.is_empty():
            return None
        frame = frame.unique(["labels", "t_ns"], keep="last", maintain_order=True)
        every = self.at_s(np.unique(frame["t_ns"].to_numpy()))
        step_s = step_of(every)
        tracks = []
        for (_,), group in frame.group_by("labels", maintain_order=True):
            at, values = self.at_s(group["t_ns"].to_numpy()), group["value"].to_numpy().astype(float)
            one = Track.of_readings(at, values, step_s, self.end_s)
            first, last = at[0], at[-1] + step_s
            late, early = first - every[0] > LATE * step_s, every[-1] - at[-1] > LATE * step_s
            held = one.values.copy()
            held[(one.at_s < first) & np.isnan(held) & late] = 0.0
            held[(one.at_s >= last) & np.isnan(held) & early] = 0.0
            tracks.append(Track(one.at_s, held, one.end_s))
        return added(tracks)

    def over_replicas(self, name: str, how: str) -> Track | None:
        """A gauge that each replica has: its ``sum``, ``mean`` or the ``count`` of those that have it; None without."""
        import polars as pl

        value = pl.col("value")
        made = {"sum": value.sum(), "mean": value.mean(), "count": pl.len().cast(pl.Float64)}[how]
        query = self.rows(name).filter(value.is_not_nan()).group_by("t_ns").agg(made.alias("value")).sort("t_ns")
        frame = self.collected(query)
        if frame.is_empty():
            return None
        at = self.at_s(frame["t_ns"].to_numpy())
        return Track.of_readings(at, frame["value"].to_numpy(), step_of(at), self.end_s)

    def step_s(self, name: str) -> float:
        """From one reading of a name to the next, the median; 0 where there are fewer than two."""
        import numpy as np

        frame = self.collected(self.rows(name).select("t_ns").unique())
        return step_of(self.at_s(np.sort(frame["t_ns"].to_numpy())))


def step_of(at_s: NDArray[np.float64]) -> float:
    """From one reading to the next, the median; 0 where there are fewer than two."""
    import numpy as np

    return float(np.median(np.diff(at_s))) if at_s.size > 1 else 0.0
