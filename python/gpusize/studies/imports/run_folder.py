"""Another tool's levels as a run folder: all or nothing, and the same folder for the same content."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpusize.base.errors import StoreError
from gpusize.records.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["Imported", "run_of", "write_run"]


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
    levels: Sequence[LevelData],
    source: Mapping[str, Any],
    *,
    api: str,
    gpus: int,
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The contents of ``run.json`` for another tool's levels.

    Args:
        run: the run's id.
        levels: in their order.
        source: which tool and which files they are of, their digest, and what was skipped.
        api: stands for that of the target.
        gpus: behind the target; 0 for unknown.
        options: those that later estimates go by.
    """
    target = {"url": None, "api": api, "model": None, "gpus": gpus, "tls_verified": None, "simulated": None}
    return {
        "schema": SCHEMA_VERSION,
        "run": run,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": [],
        "options": dict(options or {}),
        "source": dict(source),
        "targets": [target],
        "models": [],
        "hosts": [],
        "dataset": {"source": None, "rows": None, "sha256": None},
        "seed": None,
        "labels": {},
        "levels": [level.setting for level in levels],
    }


def write_run(out_dir: Path, about: Mapping[str, Any], levels: Sequence[LevelData]) -> Path:
    """Write ``run.json`` and a ``level.json`` per level below ``out_dir``; a run that is there stays untouched.

    Args:
        out_dir: the folder of runs; made when it is missing.
        about: the contents of ``run.json``; its ``run`` names the folder.
        levels: imported levels; their ``meta`` is written, with their number in this order as ``visit``.

    Returns:
        The run's folder.

    Raises:
        StoreError: it cannot be written.
    """
    folder = out_dir / str(about["run"])
    if (folder / "run.json").is_file():
        return folder
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out_dir, prefix=".import-") as scratch:
            draft = Path(scratch) / folder.name
            draft.mkdir()
            for visit, level in enumerate(levels):
                place = draft / "levels" / f"{visit:04d}"
                place.mkdir(parents=True)
                _dump(place / "level.json", {**level.meta, "visit": visit})
            _dump(draft / "run.json", about)
            draft.rename(folder)
    except OSError as error:
        raise StoreError(
            f"cannot write ({error.strerror})", str(error.filename or folder), "choose another --out"
        ) from None
    return folder


def _dump(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", "utf-8")
