"""Entries: what one inference gets, as read from a file, checked against the model and joined into requests."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpusize.base.errors import DatasetError, UsageError
from gpusize.base.text import shown
from gpusize.targets.kserve.metadata import ModelMetadata, TensorSpec
from gpusize.targets.kserve.rows import SequenceStep, Tensor, TensorRow
from gpusize.targets.kserve.tensors import count_elements, decode_base64, flatten, raw_of_array, to_raw

__all__ = ["Entry", "Shapes", "entry_from_json", "join", "parse_shapes", "tensor_of_array", "tensor_of_raw"]

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes that the user gives for inputs whose dimensions vary, without that of the batch."""

_MOST_DIGITS: Final = 10
_FORMS: Final = 'write a list, {"content": […], "shape": […]} or {"b64": "…"}'


@dataclass(frozen=True, slots=True)
class Entry:
    """One inference, or several when its tensors bring the dimension of the batch themselves.

    Args:
        tensors: its inputs, in the model's order; their shapes are without the batch unless ``batch`` says otherwise.
        where: file and line.
        batch: the leading dimension that the tensors bring, or None.
        step: its place in a sequence, or None.
    """

    tensors: tuple[Tensor, ...]
    where: str
    batch: int | None = None
    step: SequenceStep | None = None


def parse_shapes(texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Shapes from texts as ``NAME:3,224,224``.

    Raises:
        UsageError: a text that is none, or an input named twice.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, colon, numbers = text.rpartition(":")
        sizes = [one.strip() for one in numbers.split(",")]
        if not colon or not name or not all(one.isdecimal() for one in sizes):
            raise UsageError(f'"{shown(text)}" is not a shape', "shape", "write it as NAME:3,224,224")
        if name in shapes:
            raise UsageError(f'the shape of "{shown(name)}" is given twice', "shape", "give it once")
        if any(len(one) > _MOST_DIGITS for one in sizes):
            raise UsageError(f'"{shown(text)}" is not a shape of a tensor', "shape", "give sizes below 1e10")
        shapes[name] = tuple(int(one) for one in sizes)
    return shapes


def entry_from_json(
    value: Mapping[str, Any], model: ModelMetadata, shapes: Shapes, where: str, step: SequenceStep | None = None
) -> Entry:
    """An entry from one object of an input file.

    Raises:
        DatasetError: an input that the model does not have or that is missing, values that its type cannot hold, or a
            shape that does not fit.
    """
    _check_names(value, model, where)
    tensors = [_from_json(value[spec.name], spec, model, shapes, where) for spec in model.inputs if spec.name in value]
    return entry(tensors, model, where, step)


def entry(tensors: Sequence[Tensor], model: ModelMetadata, where: str, step: SequenceStep | None = None) -> Entry:
    """An entry from its tensors.

    Raises:
        DatasetError: an input is missing, or they bring different batches.
    """
    present = {tensor.name for tensor in tensors}
    missing = [spec.name for spec in model.inputs if spec.name not in present and not spec.optional]
    if missing:
        raise DatasetError(
            f'the input "{shown(missing[0])}" of {shown(model.name)} is missing', where, "give a value for every input"
        )
    batches = {
        tensor.shape[0] if _brings_batch(tensor.shape, spec, model) else None
        for tensor, spec in ((tensor, model.input(tensor.name)) for tensor in tensors)
        if spec is not None
    }
    if len(batches) > 1:
        raise DatasetError(
            "the inputs do not agree on the dimension of the batch", where, "give it for all of them alike, or for none"
        )
    return Entry(tuple(tensors), where, batches.pop() if batches else None, step)


def _check_names(value: Mapping[str, Any], model: ModelMetadata, where: str) -> None:
    names = [spec.name for spec in model.inputs]
    unknown = [name for name in value if name not in names]
    if unknown:
        raise DatasetError(
            f'{shown(model.name)} has no input "{shown(unknown[0])}"',
            where,
            f"it has {', '.join(shown(name) for name in names)}",
        )


def _brings_batch(shape: tuple[int, ...], spec: TensorSpec, model: ModelMetadata) -> bool:
    return model.batches and len(shape) == len(spec.shape)


def _from_json(value: Any, spec: TensorSpec, model: ModelMetadata, shapes: Shapes, where: str) -> Tensor:
    """One input from any of the forms that perf_analyzer's documentation has."""
    content, given = value, None
    if isinstance(value, Mapping):
        if value.keys() == {"b64"}:
            content = value
        elif "content" in value and value.keys() <= {"content", "shape"}:
            content, given = value["content"], _given_shape(value.get("shape"), spec, where)
        else:
            raise DatasetError(f'"{shown(spec.name)}" has a value in an unknown form', where, _FORMS)
    try:
        if isinstance(content, Mapping) and content.keys() == {"b64"}:
            return tensor_of_raw(decode_base64(content["b64"]), given, spec, model, shapes, where)
        if not isinstance(content, list):
            raise DatasetError(f'"{shown(spec.name)}" is {shown(content)}', where, _FORMS)
        flat, nested = flatten(content)
        raw = to_raw(spec.datatype, flat)
    except ValueError as problem:
        if isinstance(problem, DatasetError):
            raise
        raise DatasetError(
            f'"{shown(spec.name)}" cannot be made {spec.datatype}: {problem}', where, "check the values"
        ) from None
    if given is None and len(nested) > 1 and -1 in model.dims(spec) and spec.name not in shapes:
        given = nested
    return Tensor(spec.name, spec.datatype, _shape(given, len(flat), spec, model, shapes, where), raw)


def _given_shape(value: Any, spec: TensorSpec, where: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(type(size) is int and size >= 0 for size in value):
        raise DatasetError(
            f'the shape of "{shown(spec.name)}" is {shown(value)}', where, "give a list of whole numbers"
        )
    return tuple(value)


def tensor_of_raw(
    raw: bytes, given: tuple[int, ...] | None, spec: TensorSpec, model: ModelMetadata, shapes: Shapes, where: str
) -> Tensor:
    """An input from its bytes.

    Raises:
        DatasetError: they are no whole number of elements, or too few or many for the shape.
    """
    try:
        count = count_elements(spec.datatype, raw)
    except ValueError as problem:
        raise DatasetError(
            f'"{shown(spec.name)}" is not {spec.datatype}: {problem}', where, "check the file's element type"
        ) from None
    return Tensor(spec.name, spec.datatype, _shape(given, count, spec, model, shapes, where), raw)


def tensor_of_array(array: Any, spec: TensorSpec, model: ModelMetadata, where: str) -> Tensor:
    """An input from a NumPy array.

    Raises:
        DatasetError: a type or a shape that does not fit.
    """
    try:
        raw = raw_of_array(spec.datatype, array)
    except ValueError as problem:
        raise DatasetError(
            f'"{shown(spec.name)}" cannot be made {spec.datatype}: {problem}', where, "convert the array"
        ) from None
    shape = tuple(int(size) for size in array.shape)
    return Tensor(spec.name, spec.datatype, _shape(shape, array.size, spec, model, {}, where), raw)


def _shape(
    given: tuple[int, ...] | None, count: int, spec: TensorSpec, model: ModelMetadata, shapes: Shapes, where: str
) -> tuple[int, ...]:
    """The shape of an input of ``count`` elements.

    A shape in the data comes first, then that of ``--shape``, then the model's own, in which one varying dimension is
    found by division.

    Raises:
        DatasetError: it does not fit the model, or the count does not fit it.
    """
    dims = model.dims(spec)
    shape = given if given is not None else shapes.get(spec.name)
    if shape is None:
        shape = _completed(dims, count, spec, where)
    wanted = spec.shape if _brings_batch(shape, spec, model) else dims
    if len(shape) != len(wanted) or any(want not in (-1, size) for size, want in zip(shape, wanted, strict=True)):
        beside = " (without the dimension of the batch)" if model.batches else ""
        raise DatasetError(
            f'"{shown(spec.name)}" has the shape {list(shape)}; {shown(model.name)} expects {list(dims)}{beside}',
            where,
            "give a shape that fits, -1 stands for any size",
        )
    if math.prod(shape) != count:
        raise DatasetError(
            f'"{shown(spec.name)}" has {count} elements; the shape {list(shape)} holds {math.prod(shape)}',
            where,
            "give as many as the shape holds, or another shape",
        )
    return shape


def _completed(dims: tuple[int, ...], count: int, spec: TensorSpec, where: str) -> tuple[int, ...]:
    varying = dims.count(-1)
    known = math.prod(size for size in dims if size != -1)
    if varying == 0:
        return dims
    if varying > 1 or known == 0 or count % known:
        raise DatasetError(
            f'the shape of "{shown(spec.name)}" is ambiguous: {list(dims)} from {count} elements',
            where,
            f"give it: --shape {shown(spec.name)}:{','.join('N' if size == -1 else str(size) for size in dims)}",
        )
    return tuple(count // known if size == -1 else size for size in dims)


def join(entries: Sequence[Entry], model: ModelMetadata, batch: int) -> Iterator[tuple[TensorRow, str]]:
    """Requests of ``batch`` inferences each, with where they come from.

    Request k takes entries k * batch and following, from the first again after the last, until every entry was used
    equally often. Entries that bring their own batch are requests as they are.

    Raises:
        DatasetError: a batch that the model does not take, or entries of different shapes in one batch.
    """
    own = [one for one in entries if one.batch is not None or one.step is not None]
    if own and batch > 1:
        what = "is part of a sequence" if own[0].step else "brings its own batch"
        raise DatasetError(f"this entry {what}", own[0].where, "leave --batch out")
    if own or batch == 1:
        for one in entries:
            yield _single(one, model), one.where
        return
    for number in range(len(entries) // math.gcd(len(entries), batch)):
        chosen = [entries[(number * batch + offset) % len(entries)] for offset in range(batch)]
        yield _joined(chosen), chosen[0].where


def _single(one: Entry, model: ModelMetadata) -> TensorRow:
    if not model.batches:
        return TensorRow(one.tensors, 1, one.step)
    if one.batch is None:
        tensors = [Tensor(each.name, each.datatype, (1, *each.shape), each.raw) for each in one.tensors]
        return TensorRow(tuple(tensors), 1, one.step)
    if not 1 <= one.batch <= (model.max_batch_size or 1):
        raise DatasetError(
            f"a batch of {one.batch}; {shown(model.name)} takes 1 to {model.max_batch_size}", one.where, None
        )
    return TensorRow(one.tensors, one.batch, one.step)


def _joined(chosen: Sequence[Entry]) -> TensorRow:
    first = chosen[0]
    for other in chosen[1:]:
        mine, theirs = ([(each.name, each.shape) for each in one.tensors] for one in (first, other))
        if mine != theirs:
            name, shape = next(pair for pair in theirs if pair not in mine) if set(theirs) - set(mine) else theirs[0]
            raise DatasetError(
                f'"{shown(name)}" has the shape {list(shape)} here, another than in {first.where}: '
                "one request cannot hold both",
                other.where,
                "give entries of one shape, or leave --batch out",
            )
    tensors = [
        Tensor(
            each.name,
            each.datatype,
            (len(chosen), *each.shape),
            b"".join(one.tensors[number].raw for one in chosen),
        )
        for number, each in enumerate(first.tensors)
    ]
    return TensorRow(tuple(tensors), len(chosen))
