"""Reading JSON piece by piece gives what reading it whole gives, and says where it is broken."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.base.errors import ConfigError
from gpusize.studies.imports import json_stream
from gpusize.studies.imports.json_stream import JsonStream

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


class Dribble(io.BytesIO):
    """A file that hands out a few bytes at a time, whatever is asked for."""

    def __init__(self, data: bytes, step: int) -> None:
        super().__init__(data)
        self.step = step

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self.step)


def stream(data: bytes, step: int = 7) -> JsonStream:
    return JsonStream(Dribble(data, step), "x.json", "write it again")


def walked(source: JsonStream, like: Any) -> Any:
    """A value, taken in the smallest pieces that there are."""
    if isinstance(like, dict):
        return {key: walked(source, like[key]) for key in source.members()}
    if isinstance(like, list):
        return [walked(source, like[k]) for k, _ in enumerate(source.entries())]
    return source.value()


@given(VALUES, st.integers(1, 40), st.booleans(), st.sampled_from([None, 1]))
def test_pieces_are_the_whole(value: Any, step: int, plain: bool, indent: int | None):
    data = json.dumps(value, ensure_ascii=plain, indent=indent).encode("utf-8", "surrogatepass")
    for read in (walked(stream(data, step), value), stream(data, step).value()):
        assert read == value
    whole = stream(b"[" + data + b" , " + data + b"]", step)
    assert list(whole.elements()) == [value, value]
    whole.end()


@given(VALUES, st.integers(1, 40), st.data())
def test_whatever_breaks_off_is_an_error(value: Any, step: int, data: st.DataObject):
    text = json.dumps([value], ensure_ascii=False).encode("utf-8", "surrogatepass")
    cut = stream(text[: data.draw(st.integers(0, len(text) - 1))], step)
    with pytest.raises(ConfigError, match=r"x\.json, line 1, byte|not UTF-8 at byte"):
        list(cut.elements())


@pytest.mark.parametrize(
    "data, where, what",
    [
        (b'[1,\n 2,\n {"a": x}]', "line 3, byte 15", "Expecting value"),
        (b'["\xc3\xa9", y]', "line 1, byte 7", "Expecting value"),
        (b"\xef\xbb\xbf[1, y]", "line 1, byte 7", "Expecting value"),
        (b"[1 2]", "line 1, byte 3", "a comma is missing"),
        (b"[1, 2", "line 1, byte 5", "breaks off"),
        (b'["a', "line 1, byte 3", "breaks off"),
        (b"[" * 100_000, "byte 1", "nested too deeply"),
        (b"[" + b"9" * 5000 + b"]", "byte 1", "integer"),
        (b'{"a": 1}', "byte 0", "a list should be here"),
        (b"", "byte 0", "a list should be here"),
    ],
)
def test_it_says_where(data: bytes, where: str, what: str):
    with pytest.raises(ConfigError) as error:
        list(stream(data, 100_001).elements())
    assert where in str(error.value)
    assert what in str(error.value)


def test_what_follows_the_end_is_an_error():
    source = stream(b"[1] [2]")
    assert list(source.elements()) == [1]
    with pytest.raises(ConfigError, match="byte 4"):
        source.end()


def test_a_key_that_is_there_twice():
    with pytest.raises(ConfigError, match="a is there twice"):
        walked(stream(b'{"a": 1, "a": 2}'), {"a": 1})


@pytest.mark.parametrize("data", [b"\xff\xfe[\x001\x00]\x00", b'["a\xe9b", 1]', b'["a\xe9'])
def test_other_encodings(data: bytes):
    with pytest.raises(ConfigError, match="not UTF-8 at byte"):
        list(stream(data, 3).elements())


def test_one_endless_value_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(json_stream, "MOST_CHARS", 1000)
    with pytest.raises(ConfigError, match="a value of more than"):
        list(stream(b'["' + b"a" * 5000 + b'"]').elements())
    assert list(stream(b"[" + b"1," * 5000 + b"1]").elements()) == [1] * 5001
