"""Levels read from a run folder, with what lies beside their records."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.calls import llm_calls
from gpusize.errors import StoreError
from gpusize.frames import check_schema, scan
from gpusize.levels import LevelData
from gpusize.row_facts import read_rows
from gpusize.second_parts import scan_histograms, scan_seconds

if TYPE_CHECKING:
    import polars as pl

__all__ = ["kept_rows", "read_json", "read_levels", "source_of"]


def kept_rows(run_dir: Path) -> pl.DataFrame | None:
    """What a run kept of its dataset's rows, as ``gpusize.row_facts.read_rows``.

    Raises:
        StoreError: the file is damaged.
    """
    import polars as pl

    try:
        return read_rows(run_dir)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise StoreError(
            f"unreadable rows of the dataset ({reason})", str(run_dir), "leave the run out or restore it"
        ) from None


def source_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """What identifies the system and the work: addresses and APIs, models, digest of the dataset."""
    targets = [
        {"url": t.get("url"), "api": t.get("api"), "simulated": t.get("simulated")} for t in run.get("targets") or []
    ]
    # The simulated cluster listens on another port each time; its configuration is what it is.
    for target in targets:
        if target["simulated"] is not None:
            target["url"] = None
    dataset = run.get("dataset") or {}
    return {
        "targets": targets,
        "models": run.get("models") or [],
        "dataset": dataset.get("sha256") or dataset.get("source"),
    }


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of a run folder.

    Raises:
        StoreError: it is missing, unreadable or damaged.
    """
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise StoreError("not found", str(path), "give the folder of a run, the one that holds run.json") from None
    except OSError as error:
        raise StoreError(f"unreadable ({error.strerror})", str(path), "check its permissions") from None
    except ValueError as error:
        raise StoreError(f"broken JSON ({error})", str(path), "the file is damaged; leave this run out") from None
    if not isinstance(found, dict):
        raise StoreError("not a JSON object", str(path), "the file is damaged; leave this run out")
    return found


def read_levels(run_dir: Path, *, warmup_s: float | None = None) -> list[LevelData]:
    """The committed levels of a run folder, in the order of their visits.

    Args:
        run_dir: a run folder.
        warmup_s: judge the levels again with this warm-up instead of the stored intervals.

    Raises:
        StoreError: it is no run folder, is damaged, or is of a newer version.
    """
    run = read_json(run_dir / "run.json")
    check_schema(run.get("schema", 1), str(run_dir / "run.json"))
    folders = sorted(p for p in (run_dir / "levels").glob("[0-9]*") if p.is_dir())
    rows = kept_rows(run_dir)
    return [_read_level(folder, run_dir, run, rows, warmup_s) for folder in folders]


def _read_level(
    folder: Path, run_dir: Path, run: Mapping[str, Any], rows: pl.DataFrame | None, warmup_s: float | None
) -> LevelData:
    meta = read_json(folder / "level.json")
    check_schema(meta.get("schema", 1), str(folder / "level.json"))
    records = scan(sorted((folder / "records").glob("part-*.parquet")))
    try:
        level = LevelData(
            visit=int(meta["visit"]),
            setting=meta["setting"],
            state=str(meta["state"]),
            intervals=meta.get("intervals") or [],
            gpus=sum(int(target.get("gpus") or 0) for target in run.get("targets") or []),
            run=str(run.get("run", run_dir.name)),
            meta=meta,
            labels=run.get("labels") or {},
            source=source_of(run),
            records=records,
            calls=llm_calls(folder),
            histograms=scan_histograms(folder),
            seconds=scan_seconds(folder),
            percentiles=meta.get("percentiles") or {},
            items=meta.get("items") or {},
            rows=rows,
            folder=folder,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"a field is missing or wrong ({error})", str(folder / "level.json"), "is it damaged?"
        ) from None
    if level.imported or (level.intervals and warmup_s is None):
        return level
    from gpusize.windows import intervals

    return replace(level, intervals=intervals(meta, records, warmup_s, seconds=level.seconds).intervals)
