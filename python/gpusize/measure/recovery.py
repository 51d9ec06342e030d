"""What a run that died has left behind: its closed parts become a level of state ``partial``."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Any

from gpusize.analysis.broken import Look, broke, causes, failed_of, load_of
from gpusize.base.files import fsync_path, storing
from gpusize.records.schema import OUTCOMES, scan_stored
from gpusize.records.store import MEASURED, level_dirs, open_level_dirs, read_level

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpusize.records.store import RunStore

__all__ = ["finished_steps", "recover"]

_TORN = ".torn"


def recover(store: RunStore) -> list[Path]:
    """Commit the levels that a crash left open, as ``partial``, and return their folders.

    A part whose end never reached the disk is kept beside the others under a name that readers pass over; a level
    that was only queued holds nothing and goes.

    Raises:
        StoreError: the folder cannot be written.
    """
    recovered = []
    for path in open_level_dirs(store.path):
        visit = int(path.name.removeprefix(".").removesuffix(".open"))
        if (path / "records").is_dir():
            if store.discard_if_empty(visit):
                continue
        elif not any(path.iterdir()):
            with storing(path):
                path.rmdir()
            continue
        recovered.append(store.commit_level(visit, _partial_level(path), {}))
    return recovered


def finished_steps(path: Path) -> set[int]:
    """The positions in ``run.json``'s ``levels`` that need no further visit.

    A level that a failure voided is finished too: the failure is what was measured. It is not where the target itself
    had failed, whatever the load.
    """
    levels = [level for entry in level_dirs(path) if "step" in (level := read_level(entry))]
    ended = [level for level in levels if level["state"] in ("done", "interrupted")]
    looked = [(level, load) for level in ended if (load := load_of(level["setting"])) is not None]
    looks = [_look(level, load) for level, load in looked]
    dead = [level for (level, _), cause in zip(looked, causes(looks), strict=True) if cause == "failed"]
    return {int(level["step"]) for level in ended if level not in dead}


def _look(level: dict[str, Any], load: float) -> Look:
    failed, ended = failed_of(level.get("outcomes") or {})
    return Look(load, broke(level["state"], level), brought=True, failed=failed, ended=ended)


def _partial_level(path: Path) -> dict[str, Any]:
    noted: dict[str, Any] = {}
    if (path / "level.json").is_file():
        noted = read_level(path)
    sorted_parts = {name: _sort_parts(path / name) for name in MEASURED}
    torn = [name for _, cut_off in sorted_parts.values() for name in cut_off]
    parts, span_parts, second_parts, histogram_parts = (whole for whole, _ in sorted_parts.values())
    alerts = ["the run ended before this level did; what had been written by then is kept and not used for estimates"]
    if torn:
        alerts.append(f"{len(torn)} part(s) were cut off and cannot be read: {', '.join(torn)}")
    kept: dict[str, Any] = {
        "setting": noted.get("setting", {}),
        **{key: noted[key] for key in ("step", "search") if key in noted},
    }
    return {
        **kept,
        "state": "partial",
        "stop_reason": "failed",
        "intervals": [],
        "alerts": alerts,
        **_count(parts, second_parts),
        "parts": [f"records/{part.name}" for part in parts],
        "spans": _rows(span_parts),
        "span_parts": [f"spans/{part.name}" for part in span_parts],
        "second_parts": [f"seconds/{part.name}" for part in second_parts],
        "histogram_parts": [f"histograms/{part.name}" for part in histogram_parts],
        "errors": [],
    }


def _sort_parts(folder: Path) -> tuple[list[Path], list[str]]:
    """The readable parts, and the names under which the torn ones are kept."""
    import polars as pl

    whole, torn = [], []
    entries = sorted(folder.iterdir()) if folder.is_dir() else []
    for part in entries:
        readable = False
        if part.suffix == ".parquet":
            with contextlib.suppress(pl.exceptions.PolarsError, OSError):
                pl.scan_parquet(part, glob=False).select(pl.len()).collect()
                readable = True
        if readable:
            whole.append(part)
            continue
        kept = part if part.name.endswith(_TORN) else part.with_name(part.name + _TORN)
        with storing(part):
            part.rename(kept)
        torn.append(f"{folder.name}/{kept.name}")
    if torn:
        with storing(folder):
            fsync_path(folder)
    return whole, torn


def _rows(parts: Sequence[Path]) -> int:
    import polars as pl

    return sum(int(pl.scan_parquet(part, glob=False).select(pl.len()).collect().item()) for part in parts)


def _count(parts: Sequence[Path], second_parts: Sequence[Path]) -> dict[str, Any]:
    """The counts of ``level.json``: of the records, or of the seconds where not every request has a record."""
    import polars as pl

    counted = _counted_by_second(second_parts)
    if not parts:
        return {"start_ns": None, "close_ns": None, "end_ns": None, **counted, "rows": 0, "sampled": 1}
    records = scan_stored(parts, ["due_ns", "end_ns", "sent_ns", "outcome", "seq"])
    facts = records.select(
        start_ns=pl.col("due_ns").min(),
        close_ns=pl.col("due_ns").max(),
        end_ns=pl.max_horizontal(pl.col("due_ns").max(), pl.col("end_ns").max()),
        due=pl.len(),
        sent=pl.col("sent_ns").count(),
        rows=pl.len(),
    ).collect()
    by_outcome = records.group_by("outcome").agg(pl.len()).sort("outcome").collect()
    outcomes = {OUTCOMES[code]: count for code, count in by_outcome.iter_rows()}
    found = {**facts.row(0, named=True), "outcomes": outcomes, "sampled": 1}
    if counted["due"] <= found["rows"]:
        return found
    # Records are those whose number is a multiple of something; what, the folder of an open level does not say.
    numbers = records.select("seq").collect()["seq"].to_list()
    sampled = math.gcd(*numbers) or 1
    return {**found, **counted, "sampled": sampled} if sampled > 1 else found


def _counted_by_second(parts: Sequence[Path]) -> dict[str, Any]:
    import polars as pl

    if not parts:
        return {"due": 0, "sent": 0, "outcomes": {}}
    names = ["due", "sent", *OUTCOMES]
    sums = pl.concat([pl.scan_parquet(part, glob=False) for part in parts], how="diagonal")
    present = [name for name in names if name in sums.collect_schema()]
    found = sums.select(pl.col(present).sum()).collect().row(0, named=True)
    outcomes = {name: int(found[name]) for name in OUTCOMES if found.get(name)}
    return {"due": int(found.get("due") or 0), "sent": int(found.get("sent") or 0), "outcomes": outcomes}
