"""Levels read from a run folder, with what lies beside their records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpusize.analysis.level import LevelData
from gpusize.base.errors import StoreError
from gpusize.base.regular_files import part_files
from gpusize.records.calls import llm_calls
from gpusize.records.dataset_rows import read_rows
from gpusize.records.intact import check_level, has_checksums
from gpusize.records.per_second import scan_histograms, scan_seconds
from gpusize.records.run_json import identity
from gpusize.records.schema import scan
from gpusize.records.store import level_dirs, read_level, read_run

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Verified", "read_levels", "verify_run"]


def read_levels(
    run_dir: Path, *, warmup_s: float | None = None, damaged: list[StoreError] | None = None
) -> list[LevelData]:
    """The committed levels of a run folder, in the order of their visits.

    Args:
        run_dir: a run folder.
        warmup_s: judge the levels again with this warm-up instead of the stored intervals.
        damaged: where levels that are damaged are left out, and why is added here; None raises instead.

    Raises:
        StoreError: it is no run folder, is damaged, or is of a newer version.
    """
    run = read_run(run_dir)
    rows = read_rows(run_dir)
    found: list[LevelData] = []
    for folder in level_dirs(run_dir):
        try:
            level = _read_level(folder, run_dir, run, rows, warmup_s)
            found.append(replace(level, before=found[-1]) if found else level)
        except StoreError as error:
            if damaged is None:
                raise
            damaged.append(error)
    return found


class Verified(NamedTuple):
    """What the files of one level are worth.

    Attributes:
        name: the level's folder, as ``0003``.
        problem: what is damaged; None where nothing is.
        checksums: whether every file has one; older versions wrote none.
    """

    name: str
    problem: StoreError | None
    checksums: bool


def verify_run(run_dir: Path) -> list[Verified]:
    """Hold every file of a run against what was written, level by level.

    Raises:
        StoreError: it is no run folder, or what all levels share is damaged.
    """
    run = read_run(run_dir)
    rows = read_rows(run_dir)
    found = []
    for folder in level_dirs(run_dir):
        try:
            level = _read_level(folder, run_dir, run, rows, None)
            found.append(Verified(folder.name, None, has_checksums(level.meta)))
        except StoreError as error:
            found.append(Verified(folder.name, error, checksums=False))
    return found


def _balance(run: Mapping[str, Any]) -> str:
    """By which rule the generator chose among replicas; empty where there is one, or somebody else chose."""
    options = run.get("options") or {}
    if len(run.get("targets") or []) < 2 or not options.get("url"):
        return ""
    return str(options.get("balance") or "round_robin")


def _read_level(
    folder: Path, run_dir: Path, run: Mapping[str, Any], rows: pl.DataFrame | None, warmup_s: float | None
) -> LevelData:
    meta = read_level(folder)
    check_level(folder, meta)
    records = scan(part_files(folder / "records"))
    level = LevelData(
        visit=int(meta["visit"]),
        setting=meta["setting"],
        state=str(meta["state"]),
        intervals=meta.get("intervals") or [],
        gpus=sum(int(target.get("gpus") or 0) for target in run.get("targets") or []),
        run=str(run.get("run", run_dir.name)),
        meta=meta,
        labels=run.get("labels") or {},
        source=identity(run),
        records=records,
        calls=llm_calls(folder),
        histograms=scan_histograms(folder),
        seconds=scan_seconds(folder),
        percentiles=meta.get("percentiles") or {},
        items=meta.get("items") or {},
        rows=rows,
        folder=folder,
        balance=_balance(run),
    )
    if level.imported or (level.intervals and warmup_s is None):
        return level
    from gpusize.analysis.windows import intervals

    return replace(level, intervals=intervals(meta, records, warmup_s, seconds=level.seconds).intervals)
