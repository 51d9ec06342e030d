"""Series that were pulled from a monitoring server for a run, read on the run's own clock.

A folder holds the samples as they were stored (``series.parquet``: one file, or parts in a folder), with the columns
``t_ns`` (Unix ns by the server's clock), ``name``, ``labels`` (JSON), ``le`` and ``value``; and ``series.json``, which
says how far that clock is from ours, and of each name its unit and scrape interval, and the labels (``by``) that tell
apart what is one thing whoever exports it. Targets are scraped at times of their own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import StoreError
from gpusize.base.text import shown
from gpusize.estimate.plan.autoscale.judge.track import LATE, Track, added
from gpusize.records.schema import first_line
from gpusize.records.series import FACTS, read_series_facts, series_parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from gpusize.estimate.plan.autoscale.judge.run_clock import RunClock

__all__ = [
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
    "TRIGGER_ACTIVE",
    "TRIGGER_ERRORS",
    "TRIGGER_VALUE",
    "WAITING",
    "PulledSeries",
    "has_series",
]

# The names that are read, in one place: those of the presets of `gpusize autoscale pull`. Of several the first counts
# that has samples.
DESIRED: Final = ("replicas_desired", "replicas_wanted", "wva_replicas_desired")
"""Replicas that the HPA asks for; without one, those that the deployment is to have."""
CURRENT: Final = ("replicas", "replicas_current", "wva_replicas_current")
"""Replicas that there are, ready or not."""
READY: Final = ("replicas_ready", "replicas_available", "pool_ready")
RUNNING: Final = ("running",)
WAITING: Final = ("waiting", "triton_waiting")
REQUESTS: Final = ("requests", "triton_requests")
CACHE: Final = ("kv_cache_use",)
GPU_USE: Final = ("gpu_use", "triton_gpu_use")
GPU_POWER: Final = ("gpu_power", "triton_gpu_power")
CONDITIONS: Final = "hpa_condition"
"""Conditions of the HPA; labels ``condition`` and ``status``, 1 for the status that holds."""
TRIGGER_ERRORS: Final = "trigger_errors"
TRIGGER_ACTIVE: Final = "trigger_active"
TRIGGER_VALUE: Final = "trigger_value"

FOLDER: Final = "series"
"""Of a run folder: where its series lie."""
KEPT: Final = 2
"""Names whose samples are kept in memory: those that were read last."""
COLUMNS: Final = ("t_ns", "name", "labels", "value")


def has_series(run: Path) -> bool:
    """Whether series were pulled into a run folder."""
    return (run / FOLDER / FACTS).is_file()


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
        about, parts = read_series_facts(folder), series_parts(folder)
        if not parts:
            todo = "pull them, or name the folder that has them with --pulled"
            raise StoreError("no pulled series: there is no Parquet file", str(folder), todo)
        return cls(folder, about, tuple(parts), clock, end_s)

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
        found = self.about.get("clock")
        return found if isinstance(found, dict) else {}

    def _told(self, name: str) -> dict[str, Any]:
        """What ``series.json`` says of a name."""
        names = self.about.get("names")
        found = names.get(name) if isinstance(names, dict) else None
        return found if isinstance(found, dict) else {}

    def percent_factor(self, name: str, track: Track) -> float:
        """What makes per cent of a share, by its unit; where nobody says that, by whether it was ever above 1."""
        import numpy as np

        unit = str(self._told(name).get("unit") or "")
        if unit in ("%", "percent"):
            return 1.0
        known = track.values[~np.isnan(track.values)]
        return 100.0 if unit in ("share", "ratio") or not known.size or known.max() <= 1.0 else 1.0

    def first(self, names: Sequence[str]) -> str | None:
        """The first of several names that has samples; None where none has any."""
        return next((name for name in names if name in self._names), None)

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names that have samples."""
        import polars as pl

        wanted = pl.scan_parquet(list(self.files), glob=False).filter(pl.col("value").is_not_nan())
        return frozenset(self.collected(wanted.select(pl.col("name").unique()))["name"].to_list())

    def rows(self, name: str) -> pl.DataFrame:
        """The samples of a name that are numbers: ``t_ns``, ``labels`` as a category, ``value``; in no order."""
        import polars as pl

        if name not in self._kept:
            if len(self._kept) >= KEPT:
                del self._kept[next(iter(self._kept))]
            wanted = (pl.col("name") == name) & pl.col("value").is_not_nan()
            # A replica has thousands of samples, and its labels are long.
            labels = pl.col("labels").cast(pl.Categorical)
            every = pl.scan_parquet(list(self.files), glob=False).filter(wanted)
            self._kept[name] = self.collected(every.select("t_ns", labels, "value"))
        return self._kept[name]

    @cached_property
    def _kept(self) -> dict[str, pl.DataFrame]:
        return {}

    def collected(self, query: pl.LazyFrame) -> pl.DataFrame:
        """What a query of the files gives.

        Raises:
            StoreError: the files cannot be read, or lack a column.
        """
        import polars as pl

        try:
            return query.collect(engine="streaming")
        except (OSError, pl.exceptions.PolarsError) as error:
            what = f"unreadable series ({shown(first_line(error), 200)})"
            raise StoreError(what, str(self.folder), f"they need {', '.join(COLUMNS)}: pull them anew") from None

    def at_s(self, t_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Times of the server as seconds after the run's start."""
        return self.clock.at_s(t_ns - self.offset_ns)

    def track(self, names: Sequence[str]) -> Track | None:
        """A gauge of the whole, such as the replicas that are ready, by the first name that has samples; else None.

        Of several deployments it is the sum: unknown where one of them has no reading, but for one that has not begun
        or is gone. What two exporters tell of one deployment is one course.
        """
        import numpy as np
        import polars as pl

        name = self.first(names)
        if name is None:
            return None
        frame = self.rows(name).sort("t_ns").with_columns(pl.col("labels").cast(pl.String))
        by = self._told(name).get("by")
        who = {text: _who(text, by) for text in frame["labels"].unique().to_list()}
        each = frame["labels"].replace_strict(list(who), list(who.values())).to_numpy()
        at, values = self.at_s(frame["t_ns"].to_numpy()), frame["value"].to_numpy().astype(float)
        groups = [_latest(at[each == one], values[each == one]) for one in dict.fromkeys(who.values())]
        step_s = float(self._told(name).get("interval_s") or 0.0) or max(step_of(times) for times, _ in groups)
        tracks = []
        for times, read in groups:
            one = Track.of_readings(times, read, step_s, self.end_s)
            first, last = times[0], times[-1] + step_s
            late, early = first - at[0] > LATE * step_s, at[-1] - times[-1] > LATE * step_s
            held = one.values.copy()
            held[(one.at_s < first) & np.isnan(held) & late] = 0.0
            held[(one.at_s >= last) & np.isnan(held) & early] = 0.0
            tracks.append(Track(one.at_s, held, one.end_s))
        return added(tracks)

    def over_replicas(self, name: str, how: str) -> Track | None:
        """A gauge that each replica or GPU has: its ``sum`` or ``mean`` by scrape interval; None without samples.

        Each is scraped at a time of its own: what was read within one interval counts for the whole of it.
        """
        import polars as pl

        frame = self.rows(name)
        if frame.is_empty():
            return None
        step_s = self.step_s(name)
        # On the server's clock, which does not jump with ours; the first sample in the middle of its interval, so that
        # one that comes a little early or late stays in its own.
        width_ns, first_ns = max(1, round(step_s * 1e9)), int(frame["t_ns"].to_numpy().min())
        number = ((pl.col("t_ns") - (first_ns - width_ns // 2)) // width_ns).alias("number")
        value = pl.col("value").sum() if how == "sum" else pl.col("value").mean()
        found = frame.lazy().group_by(number).agg(value).sort("number").collect()
        at = self.at_s(found["number"].to_numpy() * width_ns + first_ns)
        return Track.of_readings(at, found["value"].to_numpy(), step_s, self.end_s)

    def step_s(self, name: str) -> float:
        """From one sample of a target to its next, the median; 0 where nobody knows."""
        import polars as pl

        told = float(self._told(name).get("interval_s") or 0.0)
        frame = self.rows(name)
        if told or frame.is_empty():
            return told
        most = frame["labels"].value_counts(sort=True)["labels"][0]
        times = frame.filter(pl.col("labels") == most)["t_ns"].unique().sort()
        return step_of(self.at_s(times.to_numpy()))


def _who(text: str, by: Sequence[str] | None) -> str:
    """What a label set is of: the labels of ``by``; all of it where nobody says that, or it has none of these."""
    if not by:
        return text
    labels = json.loads(text or "{}")
    chosen = {name: labels[name] for name in by if name in labels}
    return json.dumps(chosen, sort_keys=True) if chosen else text


def _latest(at: NDArray[np.float64], values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Readings in order of time, the last one of each moment."""
    import numpy as np

    kept = np.append(np.diff(at) > 0, True)
    return at[kept], values[kept]


def step_of(at_s: NDArray[np.float64]) -> float:
    """From one reading to the next, the median; 0 where there are fewer than two."""
    import numpy as np

    return float(np.median(np.diff(at_s))) if at_s.size > 1 else 0.0
