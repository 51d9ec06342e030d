"""A folder of a cluster test, opened: our tables, or the files of the Run:ai scale test tool."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.base.errors import PathMissing
from gpusize.base.files import write_frame
from gpusize.base.regular_files import check_regular
from gpusize.cluster.folder import FACTS, read_facts, scan_table
from gpusize.cluster.imports.figures import FIGURES
from gpusize.cluster.own_rows import own_rows
from gpusize.cluster.phases.timed import Timed, time_workloads
from gpusize.cluster.seed_files.read import SAMPLED, SUBMITTED, is_seed_folder, read_seed_folder
from gpusize.cluster.seed_files.write import write_sampled, write_submitted, write_times
from gpusize.cluster.tables import ATTEMPTS, STAMPS

if TYPE_CHECKING:
    import polars as pl

__all__ = ["has_rows", "imported_figures", "open_test", "read_tables", "write_tables"]


def read_tables(folder: str | Path) -> tuple[pl.DataFrame, pl.DataFrame, dict[str, Any]]:
    """The stamps of a folder's own workloads, its attempts and its facts.

    Raises:
        PathMissing: it is no folder of a cluster test.
        StoreError: something in it cannot be read.
    """
    place = Path(folder)
    if (place / FACTS).exists():
        stamps, attempts = (scan_table(place, table).collect(engine="streaming") for table in (STAMPS, ATTEMPTS))
        facts = read_facts(place)
        return own_rows(stamps, attempts, facts), attempts, facts
    if is_seed_folder(place):
        return read_seed_folder(place)
    what = "not a folder of a cluster test" if place.is_dir() else "there is no such folder"
    raise PathMissing(what, str(place), "name one with -o DIR; gpusize cluster submit makes it")


def has_rows(folder: str | Path) -> bool:
    """Whether a folder has rows of workloads, and not figures of another tool alone."""
    place = Path(folder)
    return any((place / table).is_dir() for table in (STAMPS, ATTEMPTS)) or is_seed_folder(place)


def imported_figures(folder: str | Path) -> pl.DataFrame | None:
    """Figures that were imported without rows, of `gpusize.cluster.imports.figures.figures_schema`; None for none.

    Raises:
        StoreError: the file is no regular one.
    """
    import polars as pl

    file = Path(folder) / FIGURES
    if not file.exists():
        return None
    check_regular(file)
    return pl.read_parquet(file, glob=False)


def open_test(folder: str | Path, *, skip_errors: bool = True) -> Timed:
    """The workloads of a test and their phases.

    Args:
        folder: of `gpusize cluster`, or of the Run:ai scale test tool, whose times are whole seconds.
        skip_errors: leave out workloads whose times cannot be right (`gpusize.cluster.phases.rules`).

    Raises:
        PathMissing: it is no folder of a cluster test.
        StoreError: something in it cannot be read.
        UsageError: there is no workload in it.
    """
    stamps, attempts, facts = read_tables(folder)
    return time_workloads(stamps, attempts, facts, skip_errors=skip_errors)


def write_tables(folder: Path, timed: Timed) -> list[Path]:
    """Write ``workloads.parquet``, ``phases.parquet``, ``pods.parquet`` and ``times.csv``.

    ``submitted.json`` and ``sampled.json`` are written where there are none.

    Returns:
        The files.

    Raises:
        StoreError: one cannot be written.
    """
    made = []
    for name, frame in (("workloads", timed.workloads), ("phases", timed.deltas), ("pods", timed.pods)):
        if frame.height or name != "pods":
            write_frame(folder / f"{name}.parquet", frame)
            made.append(folder / f"{name}.parquet")
    made.append(write_times(folder, timed))
    # What submitting and sampling write themselves stays as it is.
    sent = bool(timed.workloads["submitted_ns"].is_not_null().any())
    for name, write in ((SUBMITTED, write_submitted), (SAMPLED, write_sampled)):
        if sent and not (folder / name).exists():
            made.append(write(folder, timed))
    return made
