"""Readings of one source: a frame with a column per signal, and what is known of the source."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import StoreError
from gpusize.base.files import write_frame
from gpusize.observe.usage.source_facts import Facts
from gpusize.records.schema import check_schema

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

__all__ = [
    "COUNTERS",
    "GAUGES",
    "READINGS_VERSION",
    "Readings",
    "empty_frame",
    "wide_frame",
    "wide_schema",
    "with_room",
]

READINGS_VERSION: Final = 1
"""The newest version of stored readings that this reader knows."""

VERSION_KEY: Final = "gpusize.readings"
FACTS_KEY: Final = "gpusize.facts"
NAME_KEY: Final = "gpusize.source"

COUNTERS: Final = (
    *("cpu_ns", "cpu_user_ns", "cpu_system_ns", "cpu_periods", "cpu_throttled_periods", "cpu_throttled_ns"),
    *("mem_max_events", "oom_events", "oom_kill_events"),
    *("io_read_bytes", "io_write_bytes", "io_reads", "io_writes"),
    *("cpu_some_ns", "cpu_full_ns", "mem_some_ns", "mem_full_ns", "io_some_ns", "io_full_ns"),
    "cpu_waited_ns",
)
"""Columns that only grow, from 0 when the cgroup is made."""

GAUGES: Final = (
    *("mem_bytes", "mem_inactive_file_bytes", "mem_active_file_bytes", "mem_anon_bytes", "mem_file_bytes"),
    *("mem_shmem_bytes", "mem_slab_reclaimable_bytes", "mem_slab_unreclaimable_bytes", "mem_kernel_bytes"),
    *("swap_bytes", "pids", "mem_pss_bytes", "tmpfs_bytes"),
)
"""Columns that hold what is true at the time of the reading."""

MARKS: Final = ("mem_peak_bytes", "pids_peak")
"""Columns that hold the kernel's own high-water marks."""

LONGEST_GAP_NS: Final = 5_000_000_000

_ORDER: Final = (
    *("t_ns", "width_ns", "epoch"),
    *COUNTERS[:6],
    *("mem_bytes", "mem_peak_bytes", *GAUGES[1:10]),
    *COUNTERS[6:13],
    *("pids", "pids_peak"),
    *COUNTERS[13:19],
    *("mem_pss_bytes", "tmpfs_bytes", "cpu_waited_ns"),
)


def wide_schema() -> dict[str, pl.DataType]:
    """Columns of a frame of readings and their types. All but ``t_ns`` may be null: not there, or not read then."""
    import polars as pl

    return {name: pl.Int32() if name == "epoch" else pl.Int64() for name in _ORDER}


def empty_frame() -> pl.DataFrame:
    """A frame of readings without rows."""
    import polars as pl

    return pl.DataFrame(schema=wide_schema())


def wide_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """``frame`` with all columns of the schema in its order; absent ones are null, ``epoch`` 0, ``width_ns`` 0."""
    import polars as pl

    filled = {"epoch": 0, "width_ns": 0}
    columns = [
        (pl.col(name).fill_null(filled[name]) if name in filled else pl.col(name)).cast(kind)
        if name in frame.columns
        else pl.lit(filled.get(name), dtype=kind).alias(name)
        for name, kind in wide_schema().items()
    ]
    return frame.select(columns).sort("t_ns", maintain_order=True)


@dataclass(frozen=True, slots=True)
class Readings:
    """What was read of one source.

    Attributes:
        name: the source, as the user named it: a container, a command, a cgroup.
        frame: one row per reading in the order of time, columns as `wide_schema`.
        facts: what is known of the source beside that.
    """

    name: str
    frame: pl.DataFrame
    facts: Facts = field(default_factory=Facts)

    def with_facts(self, **changed: object) -> Readings:
        """The same readings with other facts."""
        return replace(self, facts=replace(self.facts, **changed))  # type: ignore[arg-type]

    def at_wall(self, begun_ns: int | None, ended_ns: int | None) -> Readings:
        """The same readings, of something that began and ended at these times since 1970, as a container's state says.

        Its counters were 0 at the begin. None, or readings that do not tell the time of day, leave a time as it is.
        A runtime works in the container's group before the container counts as started: where the CPU counter tells of
        more than all CPUs could have given since then, the begin is put back by that time.
        """
        if self.facts.clock is None:
            return self
        behind_ns = self.facts.clock[0] - self.facts.clock[1]
        told = {"begun_ns": begun_ns, "ended_ns": ended_ns}
        return with_room(self.with_facts(**{name: at + behind_ns for name, at in told.items() if at is not None}))

    def __len__(self) -> int:
        return self.frame.height

    def array(self, *columns: str) -> list[NDArray[np.int64]]:
        """``t_ns`` and the given columns at the readings that have them all. Each of shape (n,), int64."""
        known = self.frame.select("t_ns", *columns).drop_nulls()
        return [known[name].to_numpy() for name in known.columns]

    def since(self, from_ns: int) -> Readings:
        """Those after ``from_ns``, and as many before it as every counter takes that has a value there."""
        # Not all are in every reading: some files are read less often, and what is not sure is left out. One that has
        # not been told for so long is gone.
        longest_ns = max(LONGEST_GAP_NS, 10 * (self.facts.interval_ns or 0))
        times = self.frame["t_ns"]
        before, old = int((times <= from_ns).sum()), int((times < from_ns - longest_ns).sum())
        near = self.frame.slice(old, before - old)
        told = [near[column].is_not_null().arg_true() for column in COUNTERS]
        first = old + min((int(each[-1]) for each in told if len(each)), default=near.height - 1)
        return replace(self, frame=self.frame.slice(max(0, first)))

    def epochs(self) -> list[Readings]:
        """The readings between two restarts, in order; at least one, perhaps without a row."""
        if self.frame.is_empty():
            return [self]
        return [replace(self, frame=part) for part in self.frame.partition_by("epoch", maintain_order=True)]

    def write_parquet(self, file: Path) -> None:
        """Write one Parquet file, facts in its metadata.

        Raises:
            StoreError: it cannot be written.
        """
        metadata = {VERSION_KEY: str(READINGS_VERSION), NAME_KEY: self.name, FACTS_KEY: self.facts.to_json()}
        write_frame(file, self.frame, metadata=metadata)

    @classmethod
    def read_parquet(cls, file: Path) -> Readings:
        """Read what `write_parquet` wrote.

        Raises:
            StoreError: it cannot be read, holds no readings, or is of a newer version.
        """
        import polars as pl

        try:
            told = pl.read_parquet_metadata(file)
            frame = pl.read_parquet(file, glob=False)
        except (OSError, pl.exceptions.PolarsError) as problem:
            reason = str(problem).partition("\n")[0][:200]
            raise StoreError(f"unreadable readings ({reason})", str(file), "check the path") from None
        if VERSION_KEY not in told or "t_ns" not in frame.columns:
            raise StoreError("this file holds no readings of resources", str(file), "name one that gpusize wrote")
        check_schema(told[VERSION_KEY], str(file), READINGS_VERSION)
        facts = Facts.from_json(told.get(FACTS_KEY, "{}"), str(file))
        return cls(told.get(NAME_KEY, file.stem), wide_frame(frame), facts)


def with_room(readings: Readings) -> Readings:
    """The readings with a begin that leaves room for the CPU time that was used by the first reading, or in all."""
    facts, (t, v) = readings.facts, readings.array("cpu_ns")
    points = [(int(t[0]), int(v[0]))] if t.size else []
    if facts.ended_ns is not None and facts.totals.get("cpu_ns"):
        points.append((facts.ended_ns, facts.totals["cpu_ns"]))
    begun_ns = facts.begun_ns
    if begun_ns is None or facts.cpus is None:
        return readings
    # What a runtime does there is done by one thread.
    late = [at - used for at, used in points if used > facts.cpus * max(0, at - begun_ns)]
    return readings.with_facts(begun_ns=min(begun_ns, *late)) if late else readings
