"""Inputs from folders of raw tensors, and from NumPy's files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.errors import DatasetError
from gpusize.base.text import decode, read_bytes, shown
from gpusize.targets.kserve.entries import Entry, Shapes, entry, tensor_of_array, tensor_of_raw
from gpusize.targets.kserve.metadata import ModelMetadata, TensorSpec
from gpusize.targets.kserve.rows import Tensor
from gpusize.targets.kserve.tensors import pack_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["read_folder", "read_npy", "read_npz"]

_SUFFIXES: Final = ("", ".bin", ".raw", ".dat", ".txt", ".npy")


def read_folder(path: str, model: ModelMetadata, shapes: Shapes) -> list[Entry]:
    """One entry from a folder with a file per input, or one from each of its sub-folders of that kind, by name.

    A file is named as the input, perhaps with .bin, .raw, .dat, .txt or .npy behind it. It holds the elements,
    little-endian; of BYTES it is a text, one element a line.

    Raises:
        DatasetError: a file is missing or does not fit the model.
    """
    folder = Path(path)
    if _files(folder, model):
        return [_folder_entry(folder, model, shapes)]
    inner = sorted(one for one in folder.iterdir() if one.is_dir() and _files(one, model))
    if not inner:
        names = ", ".join(shown(spec.name) for spec in model.inputs)
        raise DatasetError("no file here is named as an input of the model", path, f"name them {names}")
    return [_folder_entry(one, model, shapes) for one in inner]


def _files(folder: Path, model: ModelMetadata) -> dict[str, Path]:
    """The file of each input that has one."""
    found = {}
    for spec in model.inputs:
        if "/" in spec.name or spec.name in {"", ".", ".."}:
            continue
        file = next(
            (folder / f"{spec.name}{end}" for end in _SUFFIXES if (folder / f"{spec.name}{end}").is_file()), None
        )
        if file is not None:
            found[spec.name] = file
    return found


def _folder_entry(folder: Path, model: ModelMetadata, shapes: Shapes) -> Entry:
    files = _files(folder, model)
    tensors = [_from_file(files[spec.name], spec, model, shapes) for spec in model.inputs if spec.name in files]
    return entry(tensors, model, str(folder))


def _from_file(path: Path, spec: TensorSpec, model: ModelMetadata, shapes: Shapes) -> Tensor:
    data = read_bytes(path, error=DatasetError)
    where = str(path)
    if path.suffix == ".npy" and path.stem == spec.name:
        return tensor_of_array(_load(data, where), spec, model, where)
    if spec.datatype == "BYTES":
        lines = decode(data, where, error=DatasetError).split("\n")
        data = pack_bytes(line.removesuffix("\r").encode() for line in (lines[:-1] if lines[-1] == "" else lines))
    return tensor_of_raw(data, None, spec, model, shapes, where)


def _load(data: bytes, where: str) -> Any:
    """A ``.npy`` or ``.npz`` without pickled objects, which could run code."""
    import zipfile

    import numpy as np

    try:
        return np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as problem:
        raise DatasetError(
            f"this is not a file of NumPy: {shown(str(problem), 120)}", where, "write it with numpy.save or numpy.savez"
        ) from None


def read_npy(path: str, model: ModelMetadata) -> list[Entry]:
    """Entries of a ``.npy`` for a model of one input: one, or as many as the array's first dimension.

    Raises:
        DatasetError: not such a file, or it does not fit the model.
    """
    needed = [spec for spec in model.inputs if not spec.optional] or list(model.inputs)
    if len(needed) != 1:
        raise DatasetError(
            f"{shown(model.name)} has {len(needed)} inputs, this file is one array",
            path,
            "save them by name: numpy.savez(FILE, NAME=array)",
        )
    array = _load(read_bytes(path, error=DatasetError), path)
    return _entries({needed[0].name: array}, model, path)


def read_npz(path: str, model: ModelMetadata) -> list[Entry]:
    """Entries of a ``.npz`` whose arrays are named as the inputs, or ``GROUP/INPUT``: then one group after the other.

    Raises:
        DatasetError: not such a file, or it does not fit the model.
    """
    archive = _load(read_bytes(path, error=DatasetError), path)
    files = getattr(archive, "files", None)
    if files is None:
        raise DatasetError("this is one array, not an archive of them", path, "write it with numpy.savez")
    groups: dict[str, dict[str, str]] = {}
    names = [spec.name for spec in model.inputs]
    for full in files:
        # The name of an input may have a slash in it.
        name = next((name for name in names if full == name or full.endswith(f"/{name}")), None)
        if name is None:
            it_has = f"it has {', '.join(map(shown, names))}"
            raise DatasetError(f'{shown(model.name)} has no input "{shown(full.rpartition("/")[2])}"', path, it_has)
        group = full.removesuffix(name).removesuffix("/")
        groups.setdefault(group, {})[name] = full
    if not groups:
        raise DatasetError("there is no array in it", path, "write it with numpy.savez")
    made: list[Entry] = []
    for group, members in sorted(groups.items()):
        where = f"{path}, {shown(group)}" if group else path
        made += _entries({name: _member(archive, full, where) for name, full in members.items()}, model, where)
    return made


def _member(archive: Any, name: str, where: str) -> NDArray[np.generic]:
    try:
        array: NDArray[np.generic] = archive[name]
    except (ValueError, OSError, EOFError) as problem:
        raise DatasetError(
            f"an array in it cannot be read: {shown(str(problem), 120)}", where, "write it with numpy.savez"
        ) from None
    return array


def _entries(arrays: dict[str, NDArray[np.generic]], model: ModelMetadata, path: str) -> list[Entry]:
    """One entry when the arrays have the inputs' own dimensions, one for each index when they have one more."""
    specs = [spec for spec in model.inputs if spec.name in arrays]
    more = {arrays[spec.name].ndim - len(model.dims(spec)) for spec in specs}
    if more != {1}:
        return [entry([tensor_of_array(arrays[spec.name], spec, model, path) for spec in specs], model, path)]
    counts = {arrays[spec.name].shape[0] for spec in specs}
    if len(counts) > 1:
        raise DatasetError(
            f"the arrays have {', '.join(str(count) for count in sorted(counts))} rows",
            path,
            "give all of them the same number of rows",
        )
    made = []
    for number in range(counts.pop()):
        where = f"{path}, row {number}"
        # The index keeps a dimension less: a scalar row of an array comes back as an array of no dimension.
        rows = [(spec, arrays[spec.name][number : number + 1].reshape(arrays[spec.name].shape[1:])) for spec in specs]
        made.append(entry([tensor_of_array(array, spec, model, where) for spec, array in rows], model, where))
    return made
