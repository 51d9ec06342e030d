"""A TLS stream that one thread reads and others write, both ways at once."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from gpusize.engine.hosts.access import Access
from gpusize.engine.hosts.protocol import Broken, Wire
from tests.servers.tls import OPENSSL, make_certificates, sign

FRAMES = 300
WRITERS = 3


@pytest.mark.skipif(OPENSSL is None, reason="there is no openssl")
def test_both_sides_write_from_several_threads_while_they_read(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    mine = Access(None, made.ca, made.certificate, made.key).context(server=True)
    theirs = Access(None, made.ca, *sign(made, "agent")).context(server=False)
    assert mine is not None
    assert theirs is not None
    here, there = socket.socketpair()
    shaken: list[Wire] = []
    other = threading.Thread(target=lambda: shaken.append(Wire(mine.wrap_socket(here, server_side=True))))
    other.start()
    wires = [Wire(theirs.wrap_socket(there, server_hostname="localhost"))]
    other.join()
    wires += shaken
    for wire in wires:
        wire.trust()
    read: dict[int, list[tuple[int, int, int]]] = {0: [], 1: []}

    def take(side: int) -> None:
        for _ in range(FRAMES * WRITERS):
            frame = wires[side].receive()
            writer, number = frame.fields["writer"], frame.fields["number"]
            assert frame.strings == (bytes([writer]) * (number * 97),)
            read[side].append((writer, number, len(frame.strings[0])))

    def write(side: int, writer: int) -> None:
        for number in range(FRAMES):
            wires[side].send("part", [bytes([writer]) * (number * 97)], writer=writer, number=number)

    threads = [threading.Thread(target=take, args=(side,)) for side in (0, 1)]
    threads += [threading.Thread(target=write, args=(side, writer)) for side in (0, 1) for writer in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
        assert not thread.is_alive()
    for side in (0, 1):
        for writer in range(WRITERS):
            assert [number for who, number, _ in read[side] if who == writer] == list(range(FRAMES))
    wires[0].close()
    with pytest.raises(Broken):
        wires[1].receive()
    wires[1].close()
