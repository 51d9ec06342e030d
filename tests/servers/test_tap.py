"""The tap and the child processes, which the comparisons with real peers stand on."""

from __future__ import annotations

import http.client
import os
import sys
import textwrap
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.peers.wire import PREFACE, events, exchanges, grpc_messages
from tests.servers.child import Child, ChildFailed
from tests.servers.scripted import Request, Reset, Script, ScriptedServer, Send, Step, Wait, answer, chunked
from tests.servers.tap import Spoken, Tap

Scripted = Callable[[Script], ScriptedServer]


def post(connection: http.client.HTTPConnection, path: str, body: bytes) -> bytes:
    connection.request("POST", path, body)
    return connection.getresponse().read()


def test_it_keeps_what_both_sides_say(scripted_server: Scripted) -> None:
    server = scripted_server(lambda request: [Send(answer(b'{"you": "' + request.body + b'"}'))])
    with Tap(server.port) as tap:
        connection = http.client.HTTPConnection("127.0.0.1", tap.port, timeout=10)
        said = [post(connection, f"/{number}", b"%d" % number) for number in range(3)]
        connection.close()
    found = exchanges(tap)
    assert [exchange.response for exchange in found] == said
    assert [(exchange.path, exchange.request, exchange.status) for exchange in found] == [
        (f"/{number}", b"%d" % number, 200) for number in range(3)
    ]
    assert found[2].got == {"you": "2"}


def test_a_byte_has_the_time_of_its_piece() -> None:
    spoken = Spoken([b"ab", b"c", b"def"], [10, 20, 30])
    assert [spoken.passed_ns(offset) for offset in range(6)] == [10, 10, 20, 30, 30, 30]


def test_an_event_is_stamped_when_it_is_passed_on(scripted_server: Scripted) -> None:
    go_on = threading.Event()
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    first, rest = b'data: {"n": 1}\n\n', [b'data: {"n": 2}\n\n', b"data: [DONE]\n\n"]

    def script(_: Request) -> Sequence[Step]:
        return [Send(head + b"%x\r\n%s\r\n" % (len(first), first)), Wait(go_on), Send(chunked(rest))]

    with Tap(scripted_server(script).port) as tap:
        connection = http.client.HTTPConnection("127.0.0.1", tap.port, timeout=10)
        connection.request("GET", "/")
        reply = connection.getresponse()
        begun = reply.read(len(first))
        go_on.set()
        assert begun + reply.read() == first + b"".join(rest)
        connection.close()
    seen = events(tap.connections[0].answered)
    assert [event.content["n"] for event in seen] == [1, 2]
    assert seen[0].passed_ns < seen[1].passed_ns


def test_a_reset_ends_the_client_too(scripted_server: Scripted) -> None:
    server = scripted_server(lambda _: [Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), Reset()])
    with Tap(server.port) as tap:
        connection = http.client.HTTPConnection("127.0.0.1", tap.port, timeout=10)
        with pytest.raises(http.client.IncompleteRead):
            post(connection, "/", b"")
        connection.close()
        tap.close()


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def test_messages_are_put_together_from_frames() -> None:
    message = b"\x00" + (5).to_bytes(4) + b"hello"
    data = PREFACE + b"".join(
        [
            frame(4, 0, 0, b""),
            frame(1, 4, 1, b"head"),
            frame(0, 0, 1, message[:7]),
            frame(0, 0, 3, message + message),
            frame(0, 0x9, 1, b"\x02" + message[7:] + b"\x00\x00"),
        ]
    )
    pieces = [data[at : at + 11] for at in range(0, len(data), 11)]
    assert grpc_messages(Spoken(pieces, [0] * len(pieces))) == {1: [b"hello"], 3: [b"hello", b"hello"]}


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Sequence[str]]:
    """Writes a program that takes ``--ready-fd``; the command that runs it."""

    def write(text: str) -> Sequence[str]:
        path = tmp_path / "program.py"
        path.write_text(f"import os, signal, sys\nready = int(sys.argv[-1])\n{textwrap.dedent(text)}")
        return [sys.executable, str(path)]

    return write


def test_a_child_says_when_it_is_ready_and_ends(program: Callable[[str], Sequence[str]], tmp_path: Path) -> None:
    command = program("""
        print("loading", flush=True)
        os.write(ready, b'{"port": 7}\\n')
        signal.pause()
    """)
    with Child(command, tmp_path / "log") as child:
        assert child.ready == {"port": 7}
        assert child.tail() == "loading"
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


def test_a_child_that_fails_tells_why(program: Callable[[str], Sequence[str]], tmp_path: Path) -> None:
    command = program("sys.exit('no such model')")
    with pytest.raises(ChildFailed, match=r"program\.py ended with 1:\nno such model"):
        Child(command, tmp_path / "log")
