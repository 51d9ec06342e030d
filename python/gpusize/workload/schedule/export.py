"""Writes a plan: as Parquet with everything that a replay needs, or as CSV or JSON Lines for other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import StoreError, UsageError
from gpusize.workload.schedule.from_engine import arrivals

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from gpusize.workload.dataset import Dataset
    from gpusize.workload.schedule.planned_level import Level

__all__ = [
    "COLUMNS",
    "METADATA",
    "MOST_KEPT",
    "RECORD_BYTES",
    "cost_note",
    "keep_plan",
    "plan_frame",
    "total_expected",
    "write_plan",
]

COLUMNS: Final = ("level", "stream", "seq", "due_ns", "row", "target", "priority")
METADATA: Final = "gpusize.plan"
VERSION: Final = 1

RECORD_BYTES: Final = 13.5
"""Bytes that a record of a streamed answer takes on disk, measured over 10^6 of them (docs/decisions/0003)."""

_MANY_BYTES: Final = 2e9

MOST_KEPT: Final = 1_000_000
"""Requests up to which a run keeps its plan: about 4 MB, and a second of work."""


def total_expected(levels: Sequence[Level]) -> int | None:
    """Requests of all levels; None when it depends on the answers."""
    counts = [level.setting.get("expected") for level in levels]
    return None if None in counts else sum(int(count) for count in counts if count is not None)


def cost_note(levels: Sequence[Level], sample: int = 1) -> str | None:
    """What to do when a load makes so many records that their rows should be sampled; None when it does not."""
    counts = [level.setting.get("expected") or level.setting.get("expected_about") for level in levels]
    expected = sum(int(count or 0) for count in counts)
    size = expected / sample * RECORD_BYTES
    if size < _MANY_BYTES:
        return None
    share = 10 ** len(str(int(size // _MANY_BYTES)))
    return (
        f"{expected:,} requests: their records will take about {size / 1e9:.1f} GB; "
        f"--sample-records 1/{sample * share} keeps one row in {sample * share} and counts all"
    )


def plan_frame(levels: Sequence[Level], rows: int) -> pl.DataFrame:
    """Every arrival of every level, with the columns `COLUMNS`.

    Args:
        levels: of an open loop.
        rows: rows of the dataset.

    Raises:
        UsageError: a closed loop.
    """
    import polars as pl

    closed = next((number for number, level in enumerate(levels) if "open" not in level.plan["load"]), None)
    if closed is not None:
        what = f"level {closed} is a closed loop: its requests go when answers come, so it has no plan before it runs"
        raise UsageError(what, "plan", "give rates, stages of rates, streams or a trace")
    parts = [
        arrivals(level.plan, rows, level.explicit).with_columns(pl.lit(number, pl.UInt32).alias("level"))
        for number, level in enumerate(levels)
    ]
    return pl.concat(parts).select(COLUMNS)


def write_plan(path: str | Path, levels: Sequence[Level], rows: int, dataset: Dataset | None = None) -> int:
    """Write the plan of a load.

    Args:
        path: ``.parquet``: exactly, with the levels' settings; ``.csv`` or ``.jsonl``: ``due_s`` in seconds after the
            start of the first level, for other tools.
        levels: of an open loop.
        rows: rows of the dataset.
        dataset: whose rows they are; its checksum is kept.

    Returns:
        How many requests it has.

    Raises:
        UsageError: a closed loop, or a name that ends otherwise.
        StoreError: the file cannot be written.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in (".parquet", ".csv", ".jsonl"):
        raise UsageError(f'a plan cannot be written as "{suffix}"', str(path), "name it .parquet, .csv or .jsonl")
    frame = plan_frame(levels, rows)
    try:
        if suffix == ".parquet":
            frame.write_parquet(path, metadata={METADATA: json.dumps(_facts(levels, rows, dataset))})
        elif suffix == ".csv":
            _in_seconds(frame, levels).write_csv(path, float_precision=9)
        else:
            _in_seconds(frame, levels).write_ndjson(path)
    except OSError as problem:
        raise StoreError(f"the plan cannot be written: {problem.strerror or problem}", str(path), None) from problem
    return len(frame)


def keep_plan(folder: Path, levels: Sequence[Level], rows: int, dataset: Dataset | None = None) -> bool:
    """Write ``plan.parquet`` into a run folder, where there is a plan and it is not too long to be kept unasked.

    A longer one can be made at any time from the run's own options: ``gpusize load export --config RUN/run.json``.

    Args:
        folder: the run folder.
        levels: of the run.
        rows: rows of the dataset.
        dataset: whose rows they are.

    Returns:
        Whether it was written.

    Raises:
        StoreError: the file cannot be written.
    """
    total = total_expected(levels)
    if total is None or not 0 < total <= MOST_KEPT or not all("open" in level.plan["load"] for level in levels):
        return False
    write_plan(folder / "plan.parquet", levels, rows, dataset)
    return True


def _facts(levels: Sequence[Level], rows: int, dataset: Dataset | None) -> dict[str, Any]:
    from gpusize import __version__

    return {
        "version": VERSION,
        "gpusize": __version__,
        "dataset": {"rows": rows, "sha256": None if dataset is None else dataset.sha256},
        "levels": [{"setting": level.setting, "plan": level.plan} for level in levels],
    }


def _in_seconds(frame: pl.DataFrame, levels: Sequence[Level]) -> pl.DataFrame:
    import polars as pl

    starts_ns, at_ns = [], 0
    last = dict(frame.group_by("level").agg(pl.col("due_ns").max()).iter_rows())
    for number, level in enumerate(levels):
        starts_ns.append(at_ns)
        duration_ns = level.plan["stop"]["duration_ns"]
        at_ns += int(last.get(number, 0)) if duration_ns is None else int(duration_ns)
    start = pl.col("level").replace_strict(dict(enumerate(starts_ns)), return_dtype=pl.Int64)
    due = ((pl.col("due_ns") + start) / 1e9).alias("due_s")
    return frame.select("level", "stream", "seq", due, "row", "target", "priority")
