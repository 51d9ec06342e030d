"""Reads a plan that was stored, so that it is sent again exactly."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import UsageError
from gpusize.base.text import read_bytes, shown
from gpusize.workload.schedule.arrival_arrays import Explicit
from gpusize.workload.schedule.export import COLUMNS, METADATA, VERSION

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Plan", "PlanPart"]

_TABLES: Final = {".csv": "csv", ".tsv": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"}


@dataclass(frozen=True)
class PlanPart:
    """One level of a plan.

    Attributes:
        setting: as it was planned; empty when the file does not say.
        plan: the LevelPlan that it came from; empty when the file does not say.
        explicit: its arrivals.
        streams: id and priority of each stream.
    """

    setting: dict[str, Any]
    plan: dict[str, Any]
    explicit: Explicit
    streams: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Plan:
    """A stored plan; made by `read`.

    Args:
        source: its path.
        sha256: of the file.
        rows: rows of the dataset that it was made for, or the highest that it names and one.
        dataset_sha256: the checksum of that dataset, where it is known.
        parts: its levels, in order.
    """

    source: str
    sha256: str
    rows: int
    dataset_sha256: str | None = None
    parts: tuple[PlanPart, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """Read a plan.

        Args:
            path: what ``gpusize load export`` wrote; a run folder stands for its ``plan.parquet``. CSV and JSON Lines
                need ``due_s``, and may have ``stream``, ``row``, ``target`` and ``priority``; they are one level.

        Raises:
            UsageError: not a plan.
        """
        file = Path(path)
        file = file / "plan.parquet" if file.is_dir() else file
        data = read_bytes(file)
        sha256 = hashlib.sha256(data).hexdigest()
        if file.suffix.lower() == ".parquet":
            return cls._of_parquet(data, str(file), sha256)
        if file.suffix.lower() not in _TABLES:
            raise UsageError("a plan is a .parquet, .csv or .jsonl file", str(path), "name one of these")
        part = _of_table(data, str(file))
        return cls(str(file), sha256, _highest([part]) + 1, None, (part,))

    @classmethod
    def _of_parquet(cls, data: bytes, source: str, sha256: str) -> Plan:
        import io

        import polars as pl

        try:
            frame = pl.read_parquet(io.BytesIO(data))
            facts = json.loads(pl.read_parquet_metadata(io.BytesIO(data)).get(METADATA, "{}"))
        except (pl.exceptions.PolarsError, ValueError, OSError) as problem:
            raise UsageError(f"this is not a Parquet file: {shown(str(problem), 100)}", source, None) from None
        if facts.get("version") != VERSION or not set(COLUMNS) <= set(frame.columns):
            raise UsageError("this Parquet file is not a plan", source, "make one with gpusize load export")
        parts = tuple(
            _part(level["setting"], level["plan"], frame.filter(pl.col("level") == number))
            for number, level in enumerate(facts["levels"])
        )
        known = facts["dataset"]
        return cls(source, sha256, int(known["rows"]), known["sha256"], parts)

    def __len__(self) -> int:
        return sum(len(part.explicit) for part in self.parts)

    def notes(self, dataset_sha256: str | None) -> list[str]:
        """What the user should know before this dataset is sent by this plan."""
        if None in (dataset_sha256, self.dataset_sha256) or dataset_sha256 == self.dataset_sha256:
            return []
        return [f"{self.source}: the plan was made for another dataset; its row numbers are taken as they are"]

    @property
    def highest_row(self) -> int:
        """The highest row that it sends."""
        return _highest(self.parts)


def _highest(parts: Any) -> int:
    return max(
        (int(p.explicit.rows.max()) for p in parts if p.explicit.rows is not None and len(p.explicit)), default=0
    )


def _part(setting: dict[str, Any], plan: dict[str, Any], frame: pl.DataFrame) -> PlanPart:
    import numpy as np

    due, targets = frame["due_ns"].to_numpy().astype(np.int64), frame["target"]
    session = plan.get("load", {}).get("open", {}).get("unit") == "session"
    explicit = Explicit(
        due,
        # Rows of a plan of conversations are those of their first turns: the engine finds them again by itself.
        None if session else frame["row"].to_numpy().astype(np.uint32),
        None if targets.null_count() else targets.to_numpy().astype(np.uint16),
        frame["stream"].to_numpy().astype(np.uint16),
    )
    pairs = frame.select("stream", "priority").unique("stream", keep="first", maintain_order=True).sort("stream")
    return PlanPart(setting, plan, explicit, tuple(pairs.iter_rows()))


def _of_table(data: bytes, source: str) -> PlanPart:
    import numpy as np

    from gpusize.workload.dataset.arrivals import time_of
    from gpusize.workload.dataset.formats import contained

    parsed, _ = contained(data, source, _TABLES[Path(source).suffix.lower()])
    if not parsed.rows:
        raise UsageError("there are no requests in the plan", source, "give at least one row with due_s")
    places = [f"{source}:{parsed.lines[n]}" if parsed.lines else f"{source}, row {n}" for n in range(len(parsed.rows))]
    times = [time_of(row, where) for row, where in zip(parsed.rows, places, strict=True)]
    order = sorted(range(len(times)), key=times.__getitem__)
    due = np.array([round(times[n] * 10**9) for n in order], np.int64)
    columns: dict[str, Any] = {}
    for name, most in (("row", 2**32), ("target", 2**16), ("stream", 2**16)):
        values = [_count(parsed.rows[n].get(name), name, most, places[n]) for n in order]
        columns[name] = None if None in values else np.array(values)
    rows, targets, streams = (columns[name] for name in ("row", "target", "stream"))
    priorities: dict[int, int] = {}
    for position, n in enumerate(order):
        stream = 0 if streams is None else int(streams[position])
        priorities.setdefault(stream, _signed(parsed.rows[n].get("priority"), places[n]))
    return PlanPart({}, {}, Explicit(due, rows, targets, streams), tuple(sorted(priorities.items())))


def _count(value: Any, name: str, most: int, where: str) -> int | None:
    if value in (None, ""):
        return None
    number = _signed(value, where)
    if not 0 <= number < most:
        raise UsageError(f'"{name}" is {shown(value)}', where, f"write a whole number from 0 to {most - 1}")
    return number


def _signed(value: Any, where: str) -> int:
    if value in (None, ""):
        return 0
    try:
        return int(str(value))
    except ValueError:
        raise UsageError(f"{shown(value)} is not a whole number", where, "correct it there") from None
