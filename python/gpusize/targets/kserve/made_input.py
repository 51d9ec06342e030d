"""Inputs made up: random values in a range that a model can be expected to take, or zeros."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from gpusize.base.errors import UsageError
from gpusize.base.text import shown
from gpusize.targets.kserve.entries import Entry, Shapes, entry, tensor_of_array, tensor_of_raw
from gpusize.targets.kserve.metadata import ModelMetadata, TensorSpec
from gpusize.targets.kserve.rows import Tensor
from gpusize.targets.kserve.tensors import pack_bytes

if TYPE_CHECKING:
    import numpy as np

__all__ = ["make_entries"]

_MOST_ROWS: Final = 64
_MOST_BYTES: Final = 64 << 20
_MOST_ENTRY: Final = 1 << 30
"""Of one entry while it is made, 8 bytes an element: a volume of 512 x 512 x 512 is as large."""
_MOST_TOTAL: Final = 4 << 30
_TEXT_BYTES: Final = 32
_INTEGERS_BELOW: Final = 100
_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def make_entries(kind: str, model: ModelMetadata, shapes: Shapes, seed: int, rows: int | None = None) -> list[Entry]:
    """Entries of made-up values.

    Floats are uniform in [0, 1), whole numbers in 0 to 99, booleans even, BYTES are 32 letters and digits. The same
    seed gives the same values. Several rows differ, so that a server's cache is not what is measured.

    Args:
        kind: ``random`` or ``zero``.
        model: what the model takes.
        shapes: shapes of inputs whose dimensions vary.
        seed: of the random values.
        rows: how many; None: 64, or fewer so that they stay below 64 MiB; one of zeros.

    Raises:
        UsageError: an input whose dimensions vary has no shape, or values that nobody has memory for.
    """
    import numpy as np

    sizes = {spec.name: _made_shape(spec, model, shapes) for spec in model.inputs}
    generator = np.random.default_rng(seed)
    each = sum(math.prod(sizes[spec.name]) * (8 if spec.datatype != "BYTES" else 36) for spec in model.inputs)
    _check_size(each, rows or 1, model, sizes)
    if rows is None:
        rows = 1 if kind == "zero" else max(1, min(_MOST_ROWS, _MOST_BYTES // max(each, 1)))
    where = f"--input {kind}"
    return [
        entry([_made(kind, spec, sizes[spec.name], model, generator, where) for spec in model.inputs], model, where)
        for _ in range(rows)
    ]


def _check_size(each: int, rows: int, model: ModelMetadata, sizes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse what would fill the memory: the sizes are a server's word, or a slip of the user's.

    Raises:
        UsageError: one entry, or all rows together, are larger than anybody sends.
    """
    for name, many, most, todo in (
        ("one entry", 1, _MOST_ENTRY, "give smaller ones with --shape, or data of your own as a file"),
        (f"{rows} rows", rows, _MOST_TOTAL, "ask for fewer rows, as random:16"),
    ):
        if each * many > most:
            shapes = ", ".join(f"{shown(spec.name)} {list(sizes[spec.name])}" for spec in model.inputs[:4])
            what = f"{name} of made-up values would take {each * many / 2**30:,.1f} GiB of memory: {shapes}"
            raise UsageError(what, "input", todo)


def _made_shape(spec: TensorSpec, model: ModelMetadata, shapes: Shapes) -> tuple[int, ...]:
    dims = model.dims(spec)
    shape = shapes.get(spec.name, dims)
    if -1 in shape:
        raise UsageError(
            f'the dimensions of the input "{shown(spec.name)}" vary: {list(dims)}',
            "shape",
            f"give them: --shape {shown(spec.name)}:{','.join('N' if size == -1 else str(size) for size in dims)}",
        )
    return shape


def _made(
    kind: str,
    spec: TensorSpec,
    shape: tuple[int, ...],
    model: ModelMetadata,
    generator: np.random.Generator,
    where: str,
) -> Tensor:
    import numpy as np

    if spec.datatype == "BYTES":
        count = math.prod(shape)
        letters = np.frombuffer(_LETTERS, dtype=np.uint8)
        drawn = letters[generator.integers(0, len(letters), (count, _TEXT_BYTES))]
        texts = [b""] * count if kind == "zero" else [row.tobytes() for row in drawn]
        return tensor_of_raw(pack_bytes(texts), shape, spec, model, {}, where)
    if spec.datatype == "BOOL":
        values = generator.integers(0, 2, shape).astype(bool)
    elif spec.datatype.startswith(("FP", "BF")):
        values = generator.random(shape)
    else:
        values = generator.integers(0, _INTEGERS_BELOW, shape)
    return tensor_of_array(np.zeros_like(values) if kind == "zero" else np.asarray(values), spec, model, where)
