"""Element types: JSON values to bytes and back."""

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.targets.kserve.tensors import (
    DATATYPES,
    count_elements,
    decode_base64,
    flatten,
    from_raw,
    pack_bytes,
    raw_of_array,
    to_raw,
    unpack_bytes,
)

WHOLE = [name for name in DATATYPES if "INT" in name]


@pytest.mark.parametrize(
    "datatype,values,raw",
    [
        ("BOOL", [True, False, 1, 0], "01000100"),
        ("UINT8", [0, 255], "00ff"),
        ("INT8", [-1, 127], "ff7f"),
        ("UINT16", [258], "0201"),
        ("INT16", [-2], "feff"),
        ("UINT32", [1], "01000000"),
        ("INT32", [-1], "ffffffff"),
        ("UINT64", [2**64 - 1], "ffffffffffffffff"),
        ("INT64", [-(2**63), 2**63 - 1], "0000000000000080ffffffffffffff7f"),
        ("INT64", [3.0], "0300000000000000"),
        ("FP16", [1, -2.5], "003c00c1"),
        ("BF16", [1, -2.5], "803f20c0"),
        ("FP32", [0, 1, 2.5], "000000000000803f00002040"),
        ("FP64", [1], "000000000000f03f"),
        ("BYTES", ["a", "ü", "", {"b64": "AAE="}], "0100000061" + "02000000c3bc" + "00000000" + "020000000001"),
        ("FP32", [], ""),
        ("BYTES", [], ""),
    ],
)
def test_bytes_of_values(datatype, values, raw):
    assert to_raw(datatype, values).hex() == raw
    assert count_elements(datatype, bytes.fromhex(raw)) == len(values)


def test_the_float_of_a_real_request():
    # The recorded binary request begins with the floats 0, 1, 2, ...
    assert to_raw("FP32", list(range(12))).startswith(b"\x00\x00\x00\x00\x00\x00\x80?\x00\x00\x00@\x00\x00@@")


@pytest.mark.parametrize(
    "datatype,values,what",
    [
        ("BOOL", [2], "2 is neither true nor false"),
        ("BOOL", ["true"], "true is neither"),
        ("INT8", [128], "128 is out of the range of INT8, -128 to 127"),
        ("UINT8", [-1], "-1 is out of the range"),
        ("INT64", [2**63], "out of the range"),
        ("INT32", [1.5], "1.5 is not a whole number, as INT32 wants"),
        ("INT32", [math.nan], "not a whole number"),
        ("INT32", [True], "true is not a number"),
        ("INT32", [None], "null is not a number"),
        ("FP32", ["1"], "1 is not a number"),
        ("FP32", [1e39], "1e\\+39 is out of the range of FP32"),
        ("FP16", [65520], "65520 is out of the range of FP16"),
        ("BF16", [3.4e38], "3.4e\\+38 is out of the range of BF16"),
        ("FP64", [10**400], "out of the range"),
        ("BYTES", [1], "1 is not a text"),
        ("BYTES", [{"b64": "!"}], "not base64"),
        ("FP8", [1], '"FP8" is not a datatype'),
    ],
)
def test_what_a_type_cannot_hold(datatype, values, what):
    with pytest.raises(ValueError, match=what):
        to_raw(datatype, values)


def test_infinities_and_nan_stay():
    for datatype in ("FP16", "BF16", "FP32", "FP64"):
        low, high, nan = from_raw(datatype, to_raw(datatype, [-math.inf, math.inf, math.nan]))
        assert (low, high) == (-math.inf, math.inf)
        assert math.isnan(nan)


@pytest.mark.parametrize("datatype", WHOLE)
@given(data=st.data())
def test_whole_numbers_come_back(datatype, data):
    bounds = np.iinfo(datatype.lower())
    values = data.draw(st.lists(st.integers(int(bounds.min), int(bounds.max))))
    assert from_raw(datatype, to_raw(datatype, values)) == values


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_floats_come_back(values):
    assert from_raw("FP32", to_raw("FP32", values)) == values
    assert from_raw("FP64", to_raw("FP64", values)) == values


@given(st.lists(st.floats(width=16, allow_nan=False)))
def test_halves_come_back(values):
    assert from_raw("FP16", to_raw("FP16", values)) == values


@given(st.integers(0, 2**16 - 1))
def test_every_bfloat16_comes_back(bits):
    [value] = from_raw("BF16", struct.pack("<H", bits))
    assert math.isnan(value) or to_raw("BF16", [value]) == struct.pack("<H", bits)


@given(st.floats(min_value=-1e30, max_value=1e30))
def test_bfloat16_is_the_nearest(value):
    single = float(np.float32(value))
    [got] = from_raw("BF16", to_raw("BF16", [value]))
    (bits,) = struct.unpack("<H", to_raw("BF16", [value]))
    for neighbour in (bits - 1, bits + 1):
        if neighbour & 0x7FFF not in (0x7FFF, 0x7F80):
            [other] = from_raw("BF16", struct.pack("<H", neighbour % 2**16))
            assert abs(got - single) <= abs(other - single)


@given(st.lists(st.binary()))
def test_texts_come_back(values):
    raw = pack_bytes(values)
    assert unpack_bytes(raw) == values
    assert to_raw("BYTES", values) == raw
    assert from_raw("BYTES", raw) == values


@given(st.lists(st.booleans()))
def test_booleans_come_back(values):
    assert from_raw("BOOL", to_raw("BOOL", values)) == values


@pytest.mark.parametrize(
    "datatype,raw",
    [("FP32", b"123"), ("BYTES", b"\x01\0\0"), ("BYTES", b"\x02\0\0\0a"), ("BYTES", b"\xff\xff\xff\xff")],
)
def test_bytes_that_end_early(datatype, raw):
    with pytest.raises(ValueError, match=r"bytes|ends"):
        count_elements(datatype, raw)


def test_nested_lists():
    assert flatten([[1, 2], [3, 4], [5, 6]]) == ([1, 2, 3, 4, 5, 6], (3, 2))
    assert flatten([1, 2]) == ([1, 2], (2,))
    assert flatten([]) == ([], (0,))
    assert flatten([[], []]) == ([], (2, 0))
    for ragged in ([[1], [2, 3]], [[1], 2], [1, [2]]):
        with pytest.raises(ValueError, match="differ in length"):
            flatten(ragged)


@pytest.mark.parametrize(
    "datatype,array,raw",
    [
        ("FP32", np.array([1.0]), "0000803f"),
        ("FP32", np.array([1], dtype=np.int64), "0000803f"),
        ("FP32", np.array([[1]], dtype=">f4"), "0000803f"),
        ("INT16", np.array([-1], dtype=">i8"), "ffff"),
        ("BF16", np.array([1.0], dtype=np.float32), "803f"),
        ("BF16", np.array([0x3F80], dtype=np.uint16), "803f"),
        ("BOOL", np.array([True]), "01"),
        ("BYTES", np.array(["a", "ü"]), "010000006102000000c3bc"),
        ("BYTES", np.array([b"a"]), "0100000061"),
        ("INT32", np.array([[1, 2], [3, 4]], order="F"), "01000000020000000300000004000000"),
    ],
)
def test_bytes_of_arrays(datatype, array, raw):
    assert raw_of_array(datatype, array).hex() == raw


@pytest.mark.parametrize(
    "datatype,array",
    [
        ("INT32", np.array([1.0])),
        ("INT8", np.array([300])),
        ("BOOL", np.array([1])),
        ("FP32", np.array([True])),
        ("FP32", np.array(["1"])),
        ("BYTES", np.array([1])),
        ("FP16", np.array([1e9])),
        ("FP32", np.array([1j])),
    ],
)
def test_arrays_that_do_not_fit(datatype, array):
    with pytest.raises(ValueError, match=r"fit|holds|range"):
        raw_of_array(datatype, array)


def test_base64_may_have_line_breaks():
    assert decode_base64("AAEC\nAwQ=\n") == bytes(range(5))
    for wrong in ("AAE", 3, "ä"):
        with pytest.raises(ValueError, match="base64"):
            decode_base64(wrong)
