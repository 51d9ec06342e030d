"""Input for traccc as a service from the event files of its detectors' simulations.

An event is a CSV file ``event000000000-cells.csv`` with the header
``geometry_id,measurement_id,channel0,channel1,timestamp,value``. Servers of the field take it in two forms:

- ``features``: GEOMETRY_ID UINT64[n] and FEATURES FP64[n,5], all columns but the first; without GEOMETRY_ID, FEATURES
  holds all six (``tml``).
- ``cells``: CELL_POSITIONS INT64[n,4] (geometry_id, measurement_id, channel0, channel1) and CELL_PROPERTIES FP32[n,2]
  (timestamp, value).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import DatasetError, StoreError, UsageError
from gpusize.base.files import storing
from gpusize.base.text import shown

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

__all__ = ["LAYOUTS", "convert_events", "event_files"]

LAYOUTS: Final = ("features", "cells")
"""Names of the forms."""

_POSITIONS: Final = ("geometry_id", "measurement_id", "channel0", "channel1")
_PROPERTIES: Final = ("timestamp", "value")
_EVENT: Final = re.compile(r"event.*-cells\.csv")

Tensors = dict[str, "np.ndarray[Any, Any]"]


def event_files(path: Path, count: int | None = None) -> list[Path]:
    """The event files in a folder, or beside a file of it, by name; the first ``count`` of them.

    Raises:
        DatasetError: there are none, or fewer than were asked for.
        UsageError: ``count`` is below 1.
    """
    if count is not None and count < 1:
        raise UsageError(f"the number of events must be 1 or more, not {count}", "n")
    if not path.exists():
        raise DatasetError("there is no such folder", str(path), "check the path")
    folder = path if path.is_dir() else path.parent
    try:
        found = sorted(entry for entry in folder.iterdir() if _EVENT.fullmatch(entry.name))
    except OSError as problem:
        raise DatasetError(f"this folder cannot be read: {problem.strerror}", str(folder), "check the path") from None
    if not found:
        raise DatasetError("there is no event here", str(folder), "name a folder of files event*-cells.csv")
    if count is not None and count > len(found):
        raise DatasetError(f"there are {len(found)} events, not {count}", str(folder), f"ask for up to {len(found)}")
    return found if count is None else found[:count]


def convert_events(
    path: Path, out: Path, *, count: int | None = None, layout: str = "features", tml: bool = False
) -> tuple[int, int]:
    """Write events as input for a KServe server.

    Args:
        path: a folder of event files, or one of them.
        out: the file to write: compact ``.npz``, with the tensors of event k as ``<k in 5 digits>/<name>``, or as
            ``<name>`` when there is one event; by any other name perf_analyzer's JSON.
        count: how many events, in order of their names; None for all.
        layout: one of `LAYOUTS`.
        tml: FEATURES alone, with all columns.

    Returns:
        Numbers of events and of cells.

    Raises:
        UsageError: no such layout, or ``tml`` with another than ``features``.
        DatasetError: no events, or one that is broken, with its line where it is known.
        StoreError: ``out`` cannot be written.
    """
    if layout not in LAYOUTS:
        raise UsageError(f'there is no layout "{shown(layout)}"', "layout", f"use one of {', '.join(LAYOUTS)}")
    if tml and layout != "features":
        raise UsageError("tml is a form of the features layout", "tml", "leave one of them out")
    files = event_files(path, count)
    events = (_tensors(_read(file, needs_names=layout == "cells"), str(file), layout, tml) for file in files)
    if not out.parent.is_dir():
        raise StoreError("there is no such folder", str(out.parent), "make it first")
    unfinished = out.with_name(f".{out.name}.unfinished")
    try:
        with storing(out):
            npz = out.suffix.lower() == ".npz"
            cells = _write_npz(events, unfinished, alone=len(files) == 1) if npz else _write_json(events, unfinished)
            unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
    return len(files), cells


def _read(file: Path, *, needs_names: bool) -> pl.DataFrame:
    import polars as pl

    try:
        header = pl.read_csv(file, n_rows=0, infer_schema=False, glob=False).columns
        # Identifiers of surfaces use all 64 bits: as floats they would become others.
        kinds = {name: pl.UInt64 if at == 0 or name in _POSITIONS else pl.Float64 for at, name in enumerate(header)}
        frame = pl.read_csv(file, schema_overrides=kinds, null_values=[""], glob=False)
    except (pl.exceptions.PolarsError, OSError) as problem:
        what = f"this is not an event of cells: {shown(str(problem), 160)}"
        raise DatasetError(what, str(file), "its header is geometry_id,measurement_id,…") from None
    missing = [name for name in (*_POSITIONS, *_PROPERTIES) if name not in frame.columns]
    if needs_names and missing:
        raise DatasetError(
            f'there is no column "{missing[0]}"', f"{file}:1", f"it needs {','.join((*_POSITIONS, *_PROPERTIES))}"
        )
    if frame.columns[0] != "geometry_id" or frame.width < 2:
        raise DatasetError(f'the first column is "{shown(frame.columns[0])}"', f"{file}:1", "it must be geometry_id")
    if frame.height == 0:
        raise DatasetError("the event has no cells", str(file), "leave it out")
    for name in frame.columns:
        empty = frame[name].is_null().arg_max()
        if empty is not None and frame[name].null_count():
            raise DatasetError(f'"{name}" has no value', f"{file}:{empty + 2}", "fill it in")
    return frame


def _tensors(frame: pl.DataFrame, source: str, layout: str, tml: bool) -> Tensors:  # noqa: FBT001
    import numpy as np

    if layout == "cells":
        positions = frame.select(_POSITIONS).to_numpy().astype(np.uint64)
        if positions.max() > np.iinfo(np.int64).max:
            where = f"{source}:{int(positions.max(axis=1).argmax()) + 2}"
            raise DatasetError("an identifier does not fit into INT64", where, "use --layout features")
        properties = frame.select(_PROPERTIES).to_numpy().astype(np.float32)
        return {"CELL_POSITIONS": positions.astype(np.int64), "CELL_PROPERTIES": properties}
    if tml:
        return {"FEATURES": frame.to_numpy().astype(np.float64)}
    features = frame.select(frame.columns[1:]).to_numpy().astype(np.float64)
    return {"GEOMETRY_ID": frame["geometry_id"].to_numpy().astype(np.uint64), "FEATURES": features}


def _write_json(events: Iterator[Tensors], file: Path) -> int:
    """perf_analyzer's form, ``{"data": [{name: {"content": [...], "shape": [...]}}]}``, one event at a time."""
    cells = 0
    with file.open("w", encoding="utf-8") as sink:
        sink.write('{"data": [')
        for number, tensors in enumerate(events):
            entry = {name: {"content": _numbers(array), "shape": list(array.shape)} for name, array in tensors.items()}
            sink.write(("," if number else "") + "\n  ")
            json.dump(entry, sink, separators=(",", ":"))
            cells += next(iter(tensors.values())).shape[0]
        sink.write("\n]}\n")
    return cells


def _numbers(array: np.ndarray[Any, Any]) -> list[Any]:
    """The elements row by row; of FP32 the shortest texts that mean the same FP32 number."""
    if array.dtype == "float32":
        return [float(str(value)) for value in array.ravel()]
    values: list[Any] = array.ravel().tolist()
    return values


def _write_npz(events: Iterator[Tensors], file: Path, *, alone: bool) -> int:
    """One array for each tensor of each event, compressed, one event at a time."""
    import zipfile

    import numpy as np

    cells = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, tensors in enumerate(events):
            for name, array in tensors.items():
                entry = f"{name}.npy" if alone else f"{number:05d}/{name}.npy"
                with archive.open(entry, "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            cells += next(iter(tensors.values())).shape[0]
    return cells
