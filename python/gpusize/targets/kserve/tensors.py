"""KServe's element types: JSON values to the bytes that travel (little-endian, row-major) and back.

BOOL is one byte; FP16 and BF16 exist in bytes only, JSON has none of them; an element of BYTES is its length in four
bytes and then its bytes.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from gpusize.base.text import shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "DATATYPES",
    "count_elements",
    "decode_base64",
    "element_bytes",
    "flatten",
    "from_raw",
    "pack_bytes",
    "raw_of_array",
    "to_raw",
    "unpack_bytes",
]

_NUMPY: Final = {
    "BOOL": "|b1",
    "UINT8": "|u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "|i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "BF16": "<u2",
    "FP32": "<f4",
    "FP64": "<f8",
}
DATATYPES: Final = (*_NUMPY, "BYTES")
"""All element types."""

_FLOATS: Final = frozenset({"FP16", "BF16", "FP32", "FP64"})
_SIZES: Final = {name: int(code[2:]) for name, code in _NUMPY.items()}
_LENGTH: Final = struct.Struct("<I")


def element_bytes(datatype: str) -> int | None:
    """Bytes of one element; None for BYTES, whose elements differ.

    Raises:
        ValueError: no such type.
    """
    if datatype not in DATATYPES:
        raise ValueError(f'"{shown(datatype)}" is not a datatype; there are {", ".join(DATATYPES)}')
    return _SIZES.get(datatype)


def count_elements(datatype: str, raw: bytes) -> int:
    """How many elements ``raw`` holds.

    Raises:
        ValueError: it does not end with an element's end.
    """
    size = element_bytes(datatype)
    if size is None:
        return len(unpack_bytes(raw))
    if len(raw) % size:
        raise ValueError(f"{len(raw)} bytes are not a whole number of {datatype} elements of {size} bytes")
    return len(raw) // size


def flatten(values: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """Nested lists as one flat list in row-major order, with the shape of the nesting.

    Raises:
        ValueError: lists of different lengths beside each other.
    """
    shape: list[int] = [len(values)]
    flat = list(values)
    while flat and isinstance(flat[0], list):
        width = len(flat[0])
        if not all(isinstance(one, list) and len(one) == width for one in flat):
            raise ValueError("the lists in it differ in length")
        shape.append(width)
        flat = [item for one in flat for item in one]
    if any(isinstance(one, list) for one in flat):
        raise ValueError("the lists in it differ in length")
    return flat, tuple(shape)


def to_raw(datatype: str, values: Sequence[Any]) -> bytes:
    """A flat list of JSON values as bytes.

    Whole numbers are taken for floats, and floats without a fraction for whole numbers. Elements of BYTES are texts,
    ``{"b64": "…"}``, or bytes.

    Raises:
        ValueError: a value that the type cannot hold; it names the value.
    """
    import numpy as np

    element_bytes(datatype)
    if datatype == "BYTES":
        return pack_bytes(_as_bytes(one) for one in values)
    if not values:
        return b""
    if datatype == "BOOL":
        return _bools(values)
    if any(type(one) is bool or not isinstance(one, int | float) for one in values):
        wrong = next(one for one in values if type(one) is bool or not isinstance(one, int | float))
        raise ValueError(f"{shown(wrong)} is not a number")
    if datatype in _FLOATS:
        try:
            return _floats(datatype, np.asarray(values, dtype="<f8"))
        except OverflowError:
            raise ValueError(f"a whole number in it is out of the range of {datatype}") from None
    return _whole(datatype, values)


def _bools(values: Sequence[Any]) -> bytes:
    wrong = [one for one in values if type(one) is not bool and not (type(one) is int and one in (0, 1))]
    if wrong:
        raise ValueError(f"{shown(wrong[0])} is neither true nor false")
    return bytes(int(one) for one in values)


def _whole(datatype: str, values: Sequence[Any]) -> bytes:
    import numpy as np

    code = np.dtype(_NUMPY[datatype])
    bounds = np.iinfo(code)
    whole = values
    if any(type(one) is float for one in values):
        wrong = [one for one in values if isinstance(one, float) and not one.is_integer()]
        if wrong:
            raise ValueError(f"{shown(wrong[0])} is not a whole number, as {datatype} wants")
        whole = [int(one) for one in values]
    low, high = min(whole), max(whole)
    if low < int(bounds.min) or high > int(bounds.max):
        wrong_one = low if low < int(bounds.min) else high
        raise ValueError(f"{wrong_one} is out of the range of {datatype}, {bounds.min} to {bounds.max}")
    return np.asarray(whole, dtype=code).tobytes()


def _floats(datatype: str, wide: NDArray[np.float64]) -> bytes:
    """Doubles in the given type, rounded to nearest even.

    Raises:
        ValueError: a finite value becomes infinite.
    """
    import numpy as np

    if datatype == "FP64":
        return wide.astype("<f8").tobytes()
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = wide.astype("<f2" if datatype == "FP16" else "<f4")
    rounded = _bfloat16(narrow) if datatype == "BF16" else narrow
    back = _from_bfloat16(rounded) if datatype == "BF16" else narrow
    lost = np.isinf(back) & np.isfinite(wide)
    if lost.any():
        raise ValueError(f"{wide[lost][0]:g} is out of the range of {datatype}")
    return rounded.tobytes()


def _bfloat16(narrow: NDArray[Any]) -> NDArray[np.uint16]:
    """The upper half of each float32, rounded to nearest even; a NaN stays one."""
    import numpy as np

    bits = narrow.astype("<f4").view("<u4").astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    return np.where(np.isnan(narrow), np.uint16(0x7FC0), rounded).astype("<u2")


def _from_bfloat16(halves: NDArray[Any]) -> NDArray[np.float32]:
    import numpy as np

    return (halves.astype("<u4") << np.uint32(16)).view("<f4")


def from_raw(datatype: str, raw: bytes) -> list[Any]:
    """Bytes as a flat list of JSON values, of BYTES as a list of bytes.

    Raises:
        ValueError: they do not end with an element's end.
    """
    import numpy as np

    count_elements(datatype, raw)
    if datatype == "BYTES":
        return list(unpack_bytes(raw))
    array = np.frombuffer(raw, dtype=_NUMPY[datatype])
    values: list[Any] = (_from_bfloat16(array) if datatype == "BF16" else array).tolist()
    return values


def raw_of_array(datatype: str, array: NDArray[Any]) -> bytes:
    """A NumPy array as bytes in the given type.

    Numbers are converted where nothing but precision is lost. Of BF16, 16-bit whole numbers are taken as its bits.

    Raises:
        ValueError: a kind of values, or a value, that the type cannot hold.
    """
    import numpy as np

    element_bytes(datatype)
    kind = array.dtype.kind
    if datatype == "BYTES":
        if kind not in "US":
            raise ValueError(f"an array of {array.dtype} holds no texts")
        return pack_bytes(one.encode() if isinstance(one, str) else bytes(one) for one in array.ravel().tolist())
    if datatype == "BF16" and array.dtype == np.uint16:
        return array.astype("<u2").tobytes()
    if kind not in "biuf":
        raise ValueError(f"an array of {array.dtype} holds no numbers")
    if (datatype == "BOOL") != (kind == "b"):
        raise ValueError(f"an array of {array.dtype} does not fit {datatype}")
    if datatype == "BOOL":
        return array.tobytes()
    if datatype in _FLOATS:
        return _floats(datatype, array.astype("<f8")) if array.dtype != _NUMPY[datatype] else array.tobytes()
    return _whole_array(datatype, array)


def _whole_array(datatype: str, array: NDArray[Any]) -> bytes:
    import numpy as np

    if array.dtype.kind == "f":
        raise ValueError(f"an array of {array.dtype} does not fit {datatype}")
    bounds = np.iinfo(np.dtype(_NUMPY[datatype]))
    if array.size and (int(array.min()) < int(bounds.min) or int(array.max()) > int(bounds.max)):
        raise ValueError(f"a value is out of the range of {datatype}, {bounds.min} to {bounds.max}")
    return array.astype(_NUMPY[datatype]).tobytes()


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return decode_base64(value["b64"])
    raise ValueError(f"{shown(value)} is not a text")


def decode_base64(text: Any) -> bytes:
    """The bytes that a text of base64 stands for.

    Raises:
        ValueError: it is none.
    """
    try:
        if not isinstance(text, str):
            raise ValueError(f"{shown(text)} is not a text")  # noqa: TRY004
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as problem:
        raise ValueError(f"this is not base64: {problem}") from None


def pack_bytes(elements: Iterable[bytes]) -> bytes:
    """Elements of BYTES, each after its length."""
    return b"".join(piece for one in elements for piece in (_LENGTH.pack(len(one)), one))


def unpack_bytes(raw: bytes) -> list[bytes]:
    """The elements of a BYTES tensor.

    Raises:
        ValueError: a length that points beyond the end.
    """
    elements = []
    position = 0
    while position < len(raw):
        if len(raw) - position < _LENGTH.size:
            raise ValueError("it ends inside the length of an element")
        (length,) = _LENGTH.unpack_from(raw, position)
        position += _LENGTH.size
        if length > len(raw) - position:
            raise ValueError(f"an element of {length} bytes reaches beyond the end")
        elements.append(raw[position : position + length])
        position += length
    return elements
