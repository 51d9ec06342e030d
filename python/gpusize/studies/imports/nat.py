"""Files of the NeMo Agent Toolkit's sizing calculator: ``calc_runner_output.json``, read and taken over.

The file has a p95 per concurrency, perhaps figures per item, and no requests. Estimates and fits in it are made again.
Present spelling: ``calc_data`` with ``alerts`` and ``sizing_metrics``. Older: ``per_concurrency_data`` with
``out_of_range_runs``, and the figures beside it or inside ``sizing_metrics``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from gpusize.analysis.level import LevelData
from gpusize.base.errors import ConfigError, PathMissing, StoreError
from gpusize.base.text import shown
from gpusize.records.schema import SCHEMA_VERSION
from gpusize.studies.imports.figure_levels import refuse_longest
from gpusize.studies.imports.json_file import is_json_with, number, part, read_object
from gpusize.studies.imports.run_folder import Imported, run_of, write_run

__all__ = ["FILE_NAME", "NatImport", "import_nat", "looks_like", "read_nat"]

_TOOL: Final = "NeMo Agent Toolkit sizing calculator"
FILE_NAME: Final = "calc_runner_output.json"
_DATA: Final = ("calc_data", "per_concurrency_data")
_MOST_S: Final = 1e9
"""More than 30 years: a total that counts from 1970, as of an item that never began."""
_ALERTS: Final = ("alerts", "out_of_range_runs")
_CONCURRENCY: Final = re.compile(r"[1-9][0-9]{0,8}")
_AGREE: Final = 0.01
"""Relative difference from which a p95 is not that of the items beside it."""


class NatImport(NamedTuple):
    """What was read.

    Attributes:
        levels: one per concurrency, ascending, with ``percentiles`` and ``items`` instead of records.
        files: the files they came from, the newest first.
        warnings: what was skipped, and why.
        sha256: digest of the files.
    """

    levels: list[LevelData]
    files: list[Path]
    warnings: list[str]
    sha256: str


def looks_like(path: Path, head: bytes) -> bool:
    """Whether it is the calculator's: one of its folders, or JSON with a key of its levels in its first bytes."""
    if path.is_dir():
        return any(
            True for pattern in ("", "job_*/", "online/", "online/job_*/") for _ in path.glob(pattern + FILE_NAME)
        )
    return any(is_json_with(path, head, key) for key in _DATA)


def read_nat(path: Path, *, gpus: int = 0) -> NatImport:
    """Read a file, a job's folder, or a folder of jobs (``job_*``, also below ``online``).

    Of several jobs the newest by modification time of its folder wins per concurrency, as in the calculator's offline
    mode. A broken file among several is skipped with a warning.

    Args:
        path: file or folder.
        gpus: GPUs that stood behind the tested model; the file does not say. 0 for unknown.

    Raises:
        StoreError: nothing can be read there.
        ConfigError: the file is broken, with line and column, or is no such file; or no level in it has a p95.
    """
    files = _find(path)
    found: dict[int, LevelData] = {}
    warnings: list[str] = []
    read: list[Path] = []
    digests: list[str] = []
    for file in files:
        try:
            levels, notes, sha256 = _read_file(file, gpus)
        except (ConfigError, StoreError) as error:
            if len(files) == 1:
                raise
            warnings.append(f"skipped: {error}")
            continue
        read.append(file)
        digests.append(sha256)
        warnings += notes
        for level in levels:
            found.setdefault(level.setting["concurrency"], level)
    if not found:
        why = f": {warnings[0]}" if warnings else ""
        raise ConfigError(f"no level with a p95 in it{why}", str(path), "it needs workflow_runtime_p95 per concurrency")
    [sha256] = digests if len(digests) == 1 else [hashlib.sha256("".join(digests).encode()).hexdigest()]
    return NatImport([found[c] for c in sorted(found)], read, warnings, sha256)


def _find(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise PathMissing("not found", str(path), f"give a {FILE_NAME} or the calculator's output folder")
    for folder in (path, path / "online"):
        if (folder / FILE_NAME).is_file():
            return [folder / FILE_NAME]
        jobs = [job for job in folder.glob("job_*") if (job / FILE_NAME).is_file()]
        if jobs:
            jobs.sort(key=lambda job: (-job.stat().st_mtime_ns, job.name))
            return [job / FILE_NAME for job in jobs]
    raise StoreError(f"no {FILE_NAME} in it", str(path), "give the calculator's output folder or one of its jobs")


class _Read(NamedTuple):
    levels: list[LevelData]
    notes: list[str]
    sha256: str


def _read_file(file: Path, gpus: int) -> _Read:
    content, sha256 = read_object(file, _TOOL)
    data = next((content[key] for key in _DATA if isinstance(content.get(key), dict)), None)
    if data is None:
        raise ConfigError(f"neither {_DATA[0]} nor {_DATA[1]} in it", str(file), f"is it a {FILE_NAME}?")
    levels: list[LevelData] = []
    warnings: list[str] = []
    for key, entry in data.items():
        where = f"{file}, concurrency {shown(key, 40)}"
        if not _CONCURRENCY.fullmatch(key) or not isinstance(entry, dict):
            what = f"{shown(key, 40)!r} is not a concurrency with an object"
            raise ConfigError(what, where, "keys are whole numbers from 1")
        level = _level(int(key), entry, where, gpus, len(levels))
        if level is None:
            warnings.append(f"{where}: without a p95, left out")
        else:
            levels.append(level)
    return _Read(levels, warnings, sha256)


def _level(concurrency: int, entry: Mapping[str, Any], where: str, gpus: int, visit: int) -> LevelData | None:
    metrics = part(entry, "sizing_metrics", where) or entry
    alerts = [part(metrics, "alerts", where), *(part(entry, key, where) for key in _ALERTS)]
    interrupted = any(bool(one.get("workflow_interrupted")) for one in alerts)
    percentiles = {
        name: value
        for name, key in (("runtime_p95_s", "workflow_runtime_p95"), ("llm_latency_p95_s", "llm_latency_p95"))
        if (value := number(metrics, key, where)) is not None
    }
    refuse_longest(percentiles, where)
    if not any(percentiles.values()) and not interrupted:
        return None
    items = {
        str(name): {
            field: value
            for field in ("llm_latency", "workflow_runtime")
            if (value := number(item, field, f"{where}, item {name}")) is not None
        }
        for name, item in part(metrics, "per_item_metrics", where).items()
        if isinstance(item, dict)
    }
    alerts_said = ["interrupted, as the calculator recorded it"] if interrupted else []
    flags = []
    if not interrupted and (odd := _unlike_items(percentiles.get("runtime_p95_s"), items)) is not None:
        alerts_said.append(odd)
        flags.append("inconsistent")
    total_s = number(metrics, "total_runtime", where)
    if total_s is not None and total_s > _MOST_S:
        alerts_said.append("a request failed: it is missing in the p95, and the calculator counts its time from 1970")
        total_s = None
    setting = {"kind": "closed", "concurrency": concurrency}
    meta = {
        "schema": SCHEMA_VERSION,
        "visit": visit,
        "imported": True,
        "setting": setting,
        "state": "interrupted" if interrupted else "done",
        "stop_reason": None,
        "intervals": [],
        "alerts": alerts_said,
        "flags": flags,
        "total_runtime_s": total_s,
        "percentiles": percentiles,
        "items": items,
    }
    return LevelData(
        visit=visit,
        setting=setting,
        state=str(meta["state"]),
        intervals=(),
        gpus=gpus,
        run="",
        meta=meta,
        percentiles=percentiles,
        items=items,
    )


def _unlike_items(p95_s: float | None, items: Mapping[str, Mapping[str, float]]) -> str | None:
    """What speaks against a p95 of the runtime that stands beside the items that it is of; None where nothing does.

    Of the p95 of LLM calls nothing is said: an item has the p95 of its own calls.
    """
    import numpy as np

    times = [value for item in items.values() if (value := item.get("workflow_runtime"))]
    if not p95_s or not times:
        return None
    own_s = float(np.quantile(times, 0.95))
    if abs(own_s - p95_s) <= _AGREE * p95_s:
        return None
    return f"its p95 of the runtime is {p95_s:.4g} s, and that of its {len(times):,} items is {own_s:.4g} s"


def import_nat(path: Path, out_dir: Path, gpus: int = 0) -> Imported:
    """Take the calculator's file or folder over as a run folder below ``out_dir``.

    The run's id follows from the content, so that importing the same twice gives the same folder, untouched.

    Raises:
        StoreError, ConfigError: as ``read_nat``; or the folder cannot be written.
    """
    found = read_nat(path, gpus=gpus)
    source = {
        "tool": _TOOL,
        "files": [file.name if file.parent == path else str(file) for file in found.files],
        "sha256": found.sha256,
        "warnings": found.warnings,
    }
    run = f"nat-{found.sha256[:12]}-{gpus}gpu"
    about = run_of(run, found.levels, source, api="nat", gpus=gpus)
    return Imported(write_run(out_dir, about, found.levels), found.warnings)
