"""Another tool's levels as a run folder: all or nothing, and the same folder for the same content."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from gpusize.base.errors import ConfigError, StoreError
from gpusize.base.files import storing, write_json, write_parquet
from gpusize.records.dataset_rows import keep_rows
from gpusize.records.run_schema import read_checked
from gpusize.records.schema import SCHEMA_VERSION
from gpusize.records.store import is_run_folder, read_run
from gpusize.studies.imports.request_rows import RequestLevel, write_requests

if TYPE_CHECKING:
    from types import TracebackType

    from gpusize.analysis.level import LevelData

__all__ = ["Imported", "RunDraft", "imported_before", "run_of", "write_run"]


class Imported(NamedTuple):
    """A run that was made of another tool's files.

    Attributes:
        folder: the run's folder.
        warnings: what is missing or odd in the files, and where.
    """

    folder: Path
    warnings: list[str]


def run_of(
    run: str,
    levels: Sequence[LevelData | RequestLevel],
    source: Mapping[str, Any],
    *,
    api: str,
    gpus: int,
    options: Mapping[str, Any] | None = None,
    model: str | None = None,
    nature: str | None = None,
) -> dict[str, Any]:
    """The contents of ``run.json`` for another tool's levels.

    Args:
        run: the run's id.
        levels: in their order.
        source: which tool and which files they are of, their digest, and what was skipped.
        api: stands for that of the target.
        gpus: behind the target; 0 for unknown.
        options: those that later estimates go by.
        model: its name, where the file says it.
        nature: what a request is: ``language_model``, ``inference`` of tensors, or None for nothing in particular.
    """
    target = {"url": None, "api": api, "nature": nature, "model": model, "gpus": gpus}
    target |= {"tls_verified": None, "simulated": None}
    return {
        "schema": SCHEMA_VERSION,
        "run": run,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [],
        "options": dict(options or {}),
        "source": dict(source),
        "targets": [target],
        "models": [] if model is None else [model],
        "hosts": [],
        "dataset": {"source": None, "rows": None, "sha256": None},
        "seed": None,
        "labels": {},
        "levels": [dict(level.setting) for level in levels],
    }


class RunDraft:
    """A run folder in the making: whole when it is published, and not there at all before that. A context manager.

        with RunDraft(out_dir, run) as draft:
            for level in levels:               # a generator will do: nothing of a level is kept once it is written
                draft.add(level)
            folder = draft.publish(about)

    Args:
        out_dir: the folder of runs; made when it is missing.
        run: the run's id, the name of its folder.

    Raises:
        StoreError: it cannot be written.
    """

    def __init__(self, out_dir: Path, run: str) -> None:
        self._folder = out_dir / run
        self._visits = 0
        self._origin_ns: int | None = None
        self._ends_ns: list[int] = []
        with storing(self._folder):
            out_dir.mkdir(parents=True, exist_ok=True)
            self._scratch = tempfile.TemporaryDirectory(dir=out_dir, prefix=".import-")
            self._draft = Path(self._scratch.name) / self._folder.name
            self._draft.mkdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, _error: object, _trace: TracebackType | None) -> None:
        self._scratch.cleanup()

    def add(self, level: LevelData | RequestLevel) -> dict[str, Any]:
        """Write the next level: its figures, or its requests; returns its ``level.json``.

        Raises:
            ConfigError: a request contradicts itself, or there is none in it.
            StoreError: it cannot be written.
        """
        visit, self._visits = self._visits, self._visits + 1
        place = self._draft / "levels" / f"{visit:04d}"
        with storing(self._folder):
            place.mkdir(parents=True)
            if isinstance(level, RequestLevel):
                meta, self._origin_ns = write_requests(place, visit, level, self._origin_ns)
                self._ends_ns += [meta["start_ns"], meta["end_ns"]]
            else:
                meta = {**level.meta, "visit": visit}
            write_json(place / "level.json", meta)
        return meta

    def publish(self, about: Mapping[str, Any], *, batch: int = 1) -> Path:
        """Write ``run.json`` and give the folder its name; one that is there by now stays untouched.

        Args:
            about: the contents of ``run.json``, as ``run_of`` makes them.
            batch: samples in every request.

        Raises:
            ConfigError: a figure is none that a run folder may hold, such as a load of 10^40.
            StoreError: it cannot be written.
        """
        if is_run_folder(self._folder):
            return self._folder
        with storing(self._folder):
            if self._origin_ns is not None:
                self._tie_clocks(self._origin_ns)
                if batch > 1:
                    keep_rows(self._draft, ["0"], [{"batch": batch}])
            write_json(self._draft / "run.json", about)
            self._check(", ".join((about.get("source") or {}).get("files", [self._folder.name])))
            self._draft.rename(self._folder)
        return self._folder

    def _check(self, files: str) -> None:
        """Read again what was written, so that no run is left that nobody can open."""
        for file in (self._draft / "run.json", *sorted(self._draft.glob("levels/*/level.json"))):
            try:
                read_checked(file)
            except StoreError as error:
                raise ConfigError(f"no run can be made of it: {error.what}", files, "correct it there") from None

    def _tie_clocks(self, origin_ns: int) -> None:
        """Say how far the times of the rows are from those in the other tool's file."""
        import polars as pl

        times = [min(self._ends_ns), max(self._ends_ns)]
        columns = {"mono_ns": times, "wall_ns": [each + origin_ns for each in times], "uncertainty_ns": [0, 0]}
        write_parquet(self._draft / "clocks.parquet", columns, dict.fromkeys(columns, pl.Int64))


def imported_before(out_dir: Path, run: str) -> Imported | None:
    """A run of the same content that was imported before, with its warnings; None where there is none."""
    folder = out_dir / run
    if not is_run_folder(folder):
        return None
    return Imported(folder, list((read_run(folder).get("source") or {}).get("warnings") or []))


def write_run(out_dir: Path, about: Mapping[str, Any], levels: Sequence[LevelData | RequestLevel]) -> Path:
    """Write ``run.json``, and per level its ``level.json`` and its records, below ``out_dir``.

    A run that is there stays untouched. Where an importer meets its levels one by one, it takes ``RunDraft`` instead.

    Args:
        out_dir: the folder of runs; made when it is missing.
        about: the contents of ``run.json``; its ``run`` names the folder.
        levels: levels of figures, of which ``meta`` is written, or of requests; numbered in this order.

    Returns:
        The run's folder.

    Raises:
        ConfigError: a request contradicts itself.
        StoreError: it cannot be written.
    """
    run = str(about["run"])
    if is_run_folder(out_dir / run):
        return out_dir / run
    with RunDraft(out_dir, run) as draft:
        for level in levels:
            draft.add(level)
        return draft.publish(about)
