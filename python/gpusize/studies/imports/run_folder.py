"""Another tool's levels as a run folder: all or nothing, and the same folder for the same content."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusize.base.errors import StoreError

if TYPE_CHECKING:
    from gpusize.analysis.level import LevelData

__all__ = ["write_run"]


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
