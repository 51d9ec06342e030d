"""``read``: a run of ours, or another tool's file, as a result."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from gpusize.base.typed import PATH, check_kinds
from gpusize.records.store import is_run_folder
from gpusize.result import open_run

if TYPE_CHECKING:
    from gpusize.result import Result

__all__ = ["read"]


def read(path: str | Path, out: str | Path | None = None, *, gpus: int = 0) -> Result:
    """Read a run folder, a folder of runs, or another tool's file in a format that is told by its content.

    Args:
        path: file or folder.
        out: the folder of runs that another tool's file is imported into; by default a new temporary one, which stays.
        gpus: GPUs that were measured, where a file does not say. 0 for unknown.

    Returns:
        The result; its ``notes`` say what is missing or odd in the file.

    Raises:
        StoreError: it cannot be read, or ``out`` cannot be written.
        ConfigError: it is in no known format, or is broken.
    """
    from gpusize.studies.imports.guess import import_auto

    check_kinds({"path": path}, {"path": PATH})
    place = Path(path)
    if place.is_dir() and (is_run_folder(place) or any(is_run_folder(each) for each in place.iterdir())):
        return open_run(place)
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="gpusize-"))
    try:
        run, notes = import_auto(place, folder, gpus)
    except BaseException:
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    result = open_run(run)
    result.notes += notes
    return result
