"""What ``gpusize export`` writes: a result as files, by the name of a format."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from gpusize.base.errors import UsageError
from gpusize.base.files import storing, write_atomic
from gpusize.report.export import dumps, flat

if TYPE_CHECKING:
    import polars as pl

    from gpusize.analysis.level import LevelData
    from gpusize.estimate.question import Question

__all__ = ["FORMATS", "TABLES", "Exported", "export", "rendered"]

TABLES: Final = ("summary", "records", "samples")
"""What the formats of tables hold."""


class ExportSource(Protocol):
    """The part of a result that is exported."""

    @property
    def levels(self) -> Sequence[LevelData]:
        """The level visits."""

    @property
    def summary(self) -> pl.DataFrame:
        """One row per level visit."""

    @property
    def metas(self) -> Sequence[Mapping[str, Any]]:
        """The contents of each ``run.json``."""

    def scan(self) -> pl.LazyFrame:
        """The records."""

    def samples(self) -> pl.LazyFrame:
        """The readings of servers and GPUs."""

    def question(self) -> Question:
        """What is asked of it."""

    def calculator_output(self) -> dict[str, Any]:
        """The sizing calculator's document."""


@dataclass
class Exported:
    """Files, by their names, and what has no place in them."""

    files: dict[str, bytes]
    notes: list[str] = field(default_factory=list)


def export(source: ExportSource, name: str, out: Path, what: str = "summary") -> tuple[list[Path], list[str]]:
    """Write a result in a format.

    Args:
        source: a result.
        name: one of ``FORMATS``.
        out: a file; or a folder, where it has no suffix or is one.
        what: one of ``TABLES``, for csv, json and parquet.

    Returns:
        The files, and what has no place in them.

    Raises:
        UsageError: no such format or table, or several files for one name.
        StoreError: a file cannot be written.
    """
    made = rendered(source, name, what, suffix=out.suffix.lower())
    folder = out.is_dir() or not out.suffix
    if len(made.files) > 1 and not folder:
        raise UsageError(f"there are {len(made.files)} files to write", "out", "name a folder: --out DIR")
    written = []
    for each, content in made.files.items():
        file = out / each if folder else out
        with storing(file):
            file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, content)
        written.append(file)
    return written, made.notes


def rendered(source: ExportSource, name: str, what: str = "summary", suffix: str = "") -> Exported:
    """The files of a format, in memory.

    Args:
        source: a result.
        name: one of ``FORMATS``.
        what: one of ``TABLES``, for csv, json and parquet.
        suffix: ``.json`` for a Benchmark Report in JSON instead of YAML.

    Raises:
        UsageError: no such format or table, or nothing to write.
    """
    if name not in FORMATS:
        raise UsageError(f"there is no format {name!r}", "format", f"there are {', '.join(FORMATS)}")
    if what not in TABLES:
        raise UsageError(f"there is no table {what!r}", "what", f"there are {', '.join(TABLES)}")
    if what != "summary" and name not in _TABLE_WRITERS:
        raise UsageError(f"{name} holds levels, no {what}", "what", f"take {', '.join(_TABLE_WRITERS)}")
    if name in _TABLE_WRITERS:
        tables = {"summary": lambda: source.summary, "records": lambda: source.scan().collect()}
        frame = tables.get(what, lambda: source.samples().collect())()
        return Exported({f"{what}.{name}": _TABLE_WRITERS[name](frame)})
    return _OTHERS[name](source, suffix)


def _parquet(frame: pl.DataFrame) -> bytes:
    held = io.BytesIO()
    frame.write_parquet(held)
    return held.getvalue()


_TABLE_WRITERS: Final[Mapping[str, Callable[[pl.DataFrame], bytes]]] = {
    "csv": lambda frame: flat(frame).write_csv().encode(),
    "json": lambda frame: dumps(frame.to_dicts()).encode(),
    "parquet": _parquet,
}


def _failures(source: ExportSource) -> list[str]:
    """The failures of each level, for formats without a place for them: their times are those of the other requests."""
    return [
        f"{row['run']}, visit {row['visit']}: {row['errors']:,} of {row['n'] or 0:,} requests failed, "
        "which the format has no place for"
        for row in source.summary.to_dicts()
        if row["errors"]
    ]


def _perf_analyzer(source: ExportSource, _suffix: str) -> Exported:
    from gpusize.report.exchange.perf_analyzer import csv_of, has_place

    made = Exported({}, _failures(source))
    groups: dict[str, list[tuple[LevelData, dict[str, Any]]]] = {}
    for level, row in zip(source.levels, source.summary.to_dicts(), strict=True):
        if has_place(level):
            name = f"{level.run}.csv" if level.concurrency is not None else f"{level.run}-rates.csv"
            groups.setdefault(name, []).append((level, row))
        else:
            why = "perf_analyzer's CSV has no row for a ramp or a level that was not finished"
            made.notes.append(f"{level.run}, visit {level.visit}: left out, {why}")
    for name, group in groups.items():
        levels, rows = zip(*group, strict=True)
        made.files[name] = csv_of(levels, rows).encode()
    if not made.files:
        raise UsageError("no level was measured to its end", None, "name other runs")
    return made


def _nat(source: ExportSource, _suffix: str) -> Exported:
    made = Exported({"calc_runner_output.json": dumps(source.calculator_output()).encode()}, _failures(source))
    for level in source.levels:
        if level.concurrency is None:
            why = "the calculator knows concurrencies alone"
            made.notes.append(f"{level.run}, visit {level.visit}: left out, {why}")
    return made


def _otava(source: ExportSource, _suffix: str) -> Exported:
    from gpusize.report.exchange.otava import csv_of

    text, notes = csv_of(source.metas, source.summary.to_dicts())
    return Exported({"otava.csv": text.encode()}, [*notes, *_failures(source)])


def _benchmark_report(source: ExportSource, suffix: str) -> Exported:
    from gpusize.report.exchange.benchmark_report import documents

    versions = {str(meta.get("run")): str(meta.get("gpusize") or "") for meta in source.metas}
    made = documents(source.levels, source.summary.to_dicts(), versions)
    if suffix == ".json":
        return Exported({f"{name}.json": dumps(document).encode() for name, document in made.items()})
    return Exported({f"{name}.yaml": _yaml(document) for name, document in made.items()})


def _yaml(document: Mapping[str, Any]) -> bytes:
    from ruamel.yaml import YAML

    held = io.BytesIO()
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = False
    writer.dump(dict(document), held)
    return held.getvalue()


_OTHERS: Final[Mapping[str, Callable[[ExportSource, str], Exported]]] = {
    "perf_analyzer": _perf_analyzer,
    "nat": _nat,
    "otava": _otava,
    "benchmark_report": _benchmark_report,
}

FORMATS: Final = (*_TABLE_WRITERS, *_OTHERS)
"""Names of the formats."""
