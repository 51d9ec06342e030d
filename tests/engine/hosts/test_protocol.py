"""Frames between head and agents: what is sent comes back, and nothing else is taken for one."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusize.engine.hosts.protocol import LARGE, SMALL, Broken, Wire, pack_cells, pack_rows, unpack_cells, unpack_rows

NUMBERS = st.integers(0, 2**62)


@pytest.fixture
def pair() -> Iterator[tuple[Wire, Wire]]:
    ends = socket.socketpair()
    wires = Wire(ends[0], LARGE), Wire(ends[1], LARGE)
    yield wires
    for wire in wires:
        wire.close()


def test_a_frame_arrives_as_it_was_sent(pair: tuple[Wire, Wire]) -> None:
    here, there = pair
    here.send("part", [b"", b"\x00" * 1000, "ä".encode()], level=3, name="records/part-00000.parquet")
    here.send("bye")
    kind, fields, strings = there.receive()
    assert (kind, fields) == ("part", {"level": 3, "name": "records/part-00000.parquet"})
    assert strings == (b"", b"\x00" * 1000, "ä".encode())
    assert there.receive().kind == "bye"


@given(st.lists(st.lists(st.binary(max_size=20), max_size=4), max_size=20))
def test_rows_come_back(rows: list[list[bytes]]) -> None:
    assert unpack_rows(pack_rows(rows)) == rows


@given(st.lists(st.lists(st.binary(max_size=20), max_size=4), max_size=20), st.lists(st.integers(0, 200), max_size=8))
def test_rows_come_back_wherever_their_contents_are_cut(rows: list[list[bytes]], cuts: list[int]) -> None:
    counts, lengths, *pieces = pack_rows(rows)
    data = b"".join(pieces)
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    # As arrays of Ray's object store are: read-only memory, and no bytes.
    cut = [memoryview(data)[begin:end] for begin, end in itertools.pairwise(edges)]
    assert unpack_rows([counts, lengths, *cut]) == rows  # type: ignore[list-item]


@given(st.dictionaries(st.text(max_size=8), st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=5)))
def test_cells_come_back(times: dict[str, list[tuple[int, int, int]]]) -> None:
    index, data = pack_cells(times)
    assert unpack_cells(index, data) == {name: [list(each) for each in cells] for name, cells in times.items()}


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_damaged_rows_are_refused_or_read_and_never_crash(strings: list[bytes]) -> None:
    try:
        rows = unpack_rows(strings)
    except Broken:
        return
    assert b"".join(field for row in rows for field in row) == b"".join(strings[2:])


@pytest.mark.parametrize(
    "bytes_sent",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        struct.pack("!2sHI", b"gz", 0, SMALL.header + 1) + b"x" * 100,
        struct.pack("!2sHI", b"gz", 1, 2) + struct.pack("!I", 5) + b"{}hello",
        struct.pack("!2sHI", b"gz", 0, 4) + b"[1]]",
        struct.pack("!2sHI", b"gz", 0, 2) + b"{}",
        b"gz",
    ],
    ids=["http", "long header", "strings before the greeting", "no JSON", "no kind", "cut off"],
)
def test_what_is_no_frame_is_refused(bytes_sent: bytes) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(bytes_sent)
        here.shutdown(socket.SHUT_WR)
        with pytest.raises(Broken):
            Wire(there, SMALL).receive()
