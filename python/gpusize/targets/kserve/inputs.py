"""``--input``: from what the user names to a dataset of prepared requests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from gpusize.base.errors import DatasetError, UsageError
from gpusize.base.text import is_file, shown
from gpusize.targets.kserve.entries import Entry, join
from gpusize.targets.kserve.file_input import read_folder, read_npy, read_npz
from gpusize.targets.kserve.json_input import read_json
from gpusize.targets.kserve.made_input import make_entries
from gpusize.targets.kserve.metadata import ModelMetadata
from gpusize.targets.kserve.rows import TensorRow
from gpusize.workload.dataset import Dataset

__all__ = ["TENSORS", "dataset_of_rows", "read_inputs"]

TENSORS: Final = "tensors"
"""The key of a row that holds its `TensorRow`."""

_MOST_DIGITS: Final = 7
_MADE: Final = ("random", "zero")
_MOST_TURN: Final = 65_534
_FORMS: Final = 'name a .json, .npy or .npz file, a folder of tensors, "random" or "random:ROWS"'


def read_inputs(
    inputs: Sequence[str],
    model: ModelMetadata,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    batch: int = 1,
    seed: int = 0,
) -> Dataset:
    """The requests that ``inputs`` make for ``model``, in their order.

    Args:
        inputs: input files of perf_analyzer (``.json``), folders with a file per input, ``.npy`` or ``.npz`` files,
            ``random``, ``random:ROWS`` or ``zero``.
        model: what the model takes.
        shapes: shapes of inputs whose dimensions vary, without that of the batch.
        batch: inferences in one request.
        seed: of random values.

    Returns:
        A dataset whose rows hold a `TensorRow` each, under `TENSORS`.

    Raises:
        UsageError: a batch that the model does not take, or a shape for no input.
        DatasetError: an input that cannot be read or does not fit the model; with the input's name, what is expected
            and what is given.
    """
    if not inputs:
        raise UsageError("there is nothing to send", "input", _FORMS)
    given = dict(shapes or {})
    model, notes = _batching(model, batch)
    unknown = next((name for name in given if model.input(name) is None), None)
    if unknown is not None:
        names = ", ".join(shown(spec.name) for spec in model.inputs)
        raise UsageError(f'{shown(model.name)} has no input "{shown(unknown)}"', "shape", f"it has {names}")
    entries: list[Entry] = []
    for each in inputs:
        made, more = _read(each, model, given, seed, sequences=_sequences(entries))
        if entries and made and (entries[0].step is None) != (made[0].step is None):
            raise DatasetError("sequences and single entries are mixed", each, "give one kind of them")
        entries += made
        notes += more
    if entries and entries[0].step is not None:
        notes.append(
            "steps of a sequence are sent in order, and not held back until the step before is answered: "
            "measure sequences at concurrency 1"
        )
    pairs = list(join(entries, model, batch))
    return dataset_of_rows([row for row, _ in pairs], source=", ".join(inputs), notes=notes)


def dataset_of_rows(
    rows: Sequence[TensorRow], *, source: str, notes: Sequence[str] = (), models: Sequence[str] | None = None
) -> Dataset:
    """A dataset of prepared requests.

    Args:
        rows: the requests.
        source: what they were made from.
        notes: what the user should know.
        models: the model of each row, where there are several.
    """
    digest = hashlib.sha256()
    for row in rows:
        for tensor in row.tensors:
            digest.update(f"{tensor.name}\0{tensor.datatype}\0{tensor.shape}\0{len(tensor.raw)}\0".encode())
            digest.update(tensor.raw)
        digest.update(repr(row.step).encode())
    made: list[dict[str, Any]] = []
    for number, row in enumerate(rows):
        fields: dict[str, Any] = {TENSORS: row, "batch": row.batch}
        if models is not None:
            fields["model"] = models[number]
            digest.update(models[number].encode())
        if row.step is not None:
            own = "" if models is None else f"{models[number]}:"
            fields |= {"session": f"{own}{row.step.id}", "turn": min(row.step.turn, _MOST_TURN)}
        made.append(fields)
    ids = tuple(str(number) for number in range(len(rows)))
    return Dataset(tuple(made), TENSORS, ids, source, digest.hexdigest(), notes=tuple(notes))


def _batching(model: ModelMetadata, batch: int) -> tuple[ModelMetadata, list[str]]:
    """The model with its batching known as far as ``batch`` needs it."""
    if type(batch) is not int or batch < 1:
        raise UsageError(f"a batch of {batch!r}", "batch", "give a whole number of 1 or more")
    most = model.max_batch_size
    if batch == 1:
        return model, []
    if most is None:
        if not all(spec.shape[:1] == (-1,) for spec in model.inputs):
            raise UsageError(
                f"the server does not say whether {shown(model.name)} takes batches", "batch", "leave --batch out"
            )
        note = f"{model.name}: the server gives no configuration; its first dimension, which varies, is taken as batch"
        return replace(model, max_batch_size=batch), [note]
    if most == 0:
        raise UsageError(
            f"{shown(model.name)} has no dimension for a batch (max_batch_size is 0)", "batch", "leave --batch out"
        )
    if batch > most:
        raise UsageError(f"a batch of {batch}; {shown(model.name)} takes up to {most}", "batch", f"give {most} or less")
    return model, []


def _sequences(entries: Sequence[Entry]) -> int:
    return entries[-1].step.id if entries and entries[-1].step is not None else 0


def _read(
    name: str, model: ModelMetadata, shapes: Mapping[str, tuple[int, ...]], seed: int, *, sequences: int
) -> tuple[list[Entry], list[str]]:
    kind, _, count = name.partition(":")
    if kind in _MADE and not is_file(name) and (not count or count.isdecimal()):
        if count and (len(count) > _MOST_DIGITS or int(count) < 1):
            raise UsageError(f'"{shown(name)}" is not a number of rows', "input", "give 1 to 9999999")
        return make_entries(kind, model, shapes, seed, int(count) if count else None), []
    if Path(name).is_dir():
        return read_folder(name, model, shapes), []
    suffix = Path(name).suffix.lower()
    if suffix == ".npy":
        return read_npy(name, model), []
    if suffix == ".npz":
        return read_npz(name, model), []
    if suffix == ".json":
        made = read_json(name, model, shapes, first_sequence=sequences + 1)
        return made.entries, made.notes
    what = "cannot tell the format of this input from its name" if is_file(name) else "there is no such file"
    raise DatasetError(what, name, _FORMS)
