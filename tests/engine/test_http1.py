"""HTTP/1.1 against a server that follows a script to the byte: what must be understood, what must not be swallowed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.servers.drive import SECOND_NS, Visit, closed, drive
from tests.servers.scripted import (
    Close,
    Read,
    Request,
    Reset,
    Script,
    ScriptedServer,
    Send,
    Step,
    Wait,
    answer,
    chunked,
)

Start = Callable[[Script], ScriptedServer]

PIECES = pytest.mark.parametrize("piece", [None, 1, 2, 7])
HEAD = b"HTTP/1.1 200 OK\r\n"


def assert_times_in_order(visit: Visit) -> None:
    """due <= fired <= sent <= first byte <= end, wherever both happened."""
    names = ["due_ns", "fired_ns", "sent_ns", "first_byte_ns", "end_ns"]
    for row in visit.rows.select(names).iter_rows():
        happened = [at for at in row if at is not None]
        assert happened == sorted(happened), dict(zip(names, row, strict=True))


def steps(*wanted: Step) -> Script:
    return lambda request: wanted


WHOLE = {
    "length": answer(b"Hello, World!"),
    "empty": answer(b""),
    "chunked": answer(chunked([b"Hello", b", ", b"World!"]), headers=["Transfer-Encoding: chunked"], length=False),
    "chunk extension": answer(
        chunked([b"a" * 300], extension=";x=1"), headers=["transfer-encoding:chunked"], length=False
    ),
    "trailer": answer(chunked([b"a"], trailer="Digest: 1"), headers=["Transfer-Encoding: chunked"], length=False),
    "no chunks": answer(chunked([]), headers=["Transfer-Encoding: chunked"], length=False),
    "continue": b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"final"),
    "early hints": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + answer(b"final"),
    "odd spelling": HEAD + b"cOnTeNt-lEnGtH:   2   \r\nX-Empty:\r\n\r\nok",
    "no reason": b"HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\nok",
    "no content": b"HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n",
    "binary": answer(bytes(range(256)) * 3),
}


@PIECES
@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_response_is_ok_however_it_is_split(scripted_server: Start, name: str, piece: int | None) -> None:
    server = scripted_server(steps(Send(WHOLE[name], piece)))
    visit = drive(server.port, count=3)
    assert visit.outcomes == ["ok"] * 3
    assert visit.column("status") == [204 if name == "no content" else 200] * 3
    assert visit.column("bytes_in") == [len(WHOLE[name])] * 3
    assert server.connections == visit.rows["conn"].n_unique() == 1
    assert_times_in_order(visit)


@PIECES
@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
def test_a_body_that_ends_by_close(scripted_server: Start, version: bytes, piece: int | None) -> None:
    response = version + b" 200 OK\r\nContent-Type: text/plain\r\n\r\n" + b"until the end\r\n\r\n" * 20
    server = scripted_server(steps(Send(response, piece), Close()))
    visit = drive(server.port, count=3)
    assert visit.outcomes == ["ok"] * 3
    assert visit.column("bytes_in") == [len(response)] * 3
    assert len(set(visit.column("conn"))) == server.connections == 3


@pytest.mark.parametrize("header", ["Connection: close", "connection: Keep-Alive, CLOSE"])
def test_an_announced_close_is_obeyed(scripted_server: Start, header: str) -> None:
    server = scripted_server(steps(Send(answer(headers=[header])), Close()))
    visit = drive(server.port, count=4)
    assert visit.outcomes == ["ok"] * 4
    assert server.connections == visit.rows["conn"].n_unique() == 4
    # The first was opened before the level began; the others are the price of their request.
    assert [ns is not None for ns in visit.column("connect_ns")] == [False, True, True, True]


@pytest.mark.parametrize("status", ["200 OK", "304 Not Modified"])
def test_head_and_304_have_no_body(scripted_server: Start, status: str) -> None:
    response = f"HTTP/1.1 {status}\r\nContent-Length: 1000000\r\n\r\n".encode()
    server = scripted_server(steps(Send(response)))
    method = "HEAD" if status.startswith("200") else "GET"
    visit = drive(server.port, count=3, method=method)
    assert set(visit.outcomes) == {"ok" if method == "HEAD" else "http_error"}
    assert visit.column("bytes_in") == [len(response)] * 3
    assert all(request.start_line.startswith(method) for request in server.requests)


@pytest.mark.parametrize("status", [301, 400, 401, 404, 429, 500, 503])
def test_a_status_outside_the_rule_is_an_http_error(scripted_server: Start, status: int) -> None:
    text = b'{"error": "the server says so"}'
    server = scripted_server(steps(Send(answer(text, status=f"{status} X", headers=["Location: /elsewhere"]))))
    visit = drive(server.port, count=5)
    assert visit.outcomes == ["http_error"] * 5
    assert visit.column("status") == [status] * 5
    assert [request.start_line for request in server.requests] == ["GET / HTTP/1.1"] * 5
    (error,) = visit.outcome["errors"]
    assert (error["outcome"], error["status"], error["count"]) == ("http_error", status, 5)
    assert "the server says so" in error["message"]
    assert set(visit.column("error_id")) == {error["id"]}


TRUNCATED = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "short body": HEAD + b"Content-Length: 10\r\n\r\nshort",
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\na\r\nshort",
    "no last chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n",
    "only interim": b"HTTP/1.1 100 Continue\r\n\r\n",
}


@pytest.mark.parametrize("name", TRUNCATED)
def test_a_response_that_stops_early_is_truncated(scripted_server: Start, name: str) -> None:
    server = scripted_server(
        lambda request: [Send(TRUNCATED[name]), Close()] if len(server.requests) < 3 else [Send(answer())]
    )
    visit = drive(server.port, count=5)
    # A connection that ends without a byte may be tried again on a new one; no other fault may.
    assert visit.outcomes[-1] == "ok"
    assert set(visit.outcomes) == {"truncated", "ok"}
    assert_times_in_order(visit)


NOT_HTTP = {
    "garbage": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "bad version": b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "bad status": b"HTTP/1.1 2x0 OK\r\nContent-Length: 0\r\n\r\n",
    "no colon": HEAD + b"this is not a header\r\n\r\n",
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "no number": HEAD + b"Content-Length: many\r\n\r\n",
    "two lengths": HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "huge length": HEAD + b"Content-Length: 99999999999999999999999999\r\n\r\n",
    "bad chunk size": HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n",
    "no end of chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabcd\r\n0\r\n\r\n",
    "nul in header": HEAD + b"X-A: \x00\r\nContent-Length: 0\r\n\r\n",
    "upgrade": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
}


@PIECES
@pytest.mark.parametrize("name", NOT_HTTP)
def test_what_is_no_http_is_a_protocol_error(scripted_server: Start, name: str, piece: int | None) -> None:
    def script(request: Request) -> Sequence[Step]:
        return [Send(NOT_HTTP[name], piece), Wait()] if request.connection == 0 else [Send(answer())]

    visit = drive(scripted_server(script).port, count=3)
    assert visit.outcomes == ["protocol_error", "ok", "ok"]
    assert visit.rows["conn"].n_unique() == 2, "a connection that spoke nonsense must not be used again"
    assert visit.outcome["errors"][0]["message"]


def test_a_head_beyond_its_limit_is_refused(scripted_server: Start) -> None:
    head = HEAD + b"X-Long: " + b"a" * 5000 + b"\r\nContent-Length: 2\r\n\r\nok"
    server = scripted_server(steps(Send(head), Wait()))
    assert drive(server.port, max_header_bytes=4096).outcomes == ["protocol_error"]


def test_an_endless_head_is_refused(scripted_server: Start) -> None:
    server = scripted_server(steps(Send(HEAD + b"X-More: a\r\n" * 20_000), Wait()))
    assert drive(server.port, max_header_bytes=16_384).outcomes == ["protocol_error"]


@pytest.mark.parametrize("coding", ["length", "chunked", "close"])
def test_a_body_beyond_its_limit_is_refused(scripted_server: Start, coding: str) -> None:
    body = b"a" * 100_000
    responses = {
        "length": answer(body),
        "chunked": answer(chunked([body]), headers=["Transfer-Encoding: chunked"], length=False),
        "close": HEAD + b"\r\n" + body,
    }
    server = scripted_server(steps(Send(responses[coding]), Wait()))
    assert drive(server.port, max_body_bytes=10_000).outcomes == ["protocol_error"]
    assert drive(scripted_server(steps(Send(answer(b"a" * 10_000)))).port, max_body_bytes=10_000).outcomes == ["ok"]


@pytest.mark.parametrize("said", [b"", HEAD + b"Content-Length: 1000\r\n\r\nbegun"])
def test_a_reset_is_a_failure_and_the_next_request_has_a_new_connection(scripted_server: Start, said: bytes) -> None:
    gone = threading.Event()

    def script(request: Request) -> Sequence[Step]:
        if request.connection == 0:
            return [Send(said), Reset()]
        gone.set()
        return [Send(answer())]

    visit = drive(scripted_server(script).port, count=4)
    assert visit.outcomes[1:] == ["ok"] * 3
    assert visit.outcomes[0] in {"truncated", "protocol_error"}
    assert gone.is_set()
    assert_times_in_order(visit)


@pytest.mark.parametrize("begun", [b"", HEAD, HEAD + b"Content-Length: 10\r\n\r\nhalf"])
def test_a_silent_server_is_a_timeout(scripted_server: Start, begun: bytes) -> None:
    server = scripted_server(lambda request: [Send(begun), Wait()] if request.connection == 0 else [Send(answer())])
    # The bound is for those too that are answered, by a server whose threads may stand still for a while.
    visit = drive(server.port, count=3, timeout_ns=2 * SECOND_NS)
    assert visit.outcomes == ["timeout", "ok", "ok"]
    waited_ns = visit.column("end_ns")[0] - visit.column("sent_ns")[0]
    assert waited_ns >= 2 * SECOND_NS
    assert len(set(visit.column("conn"))) == 2
    assert_times_in_order(visit)


def test_a_slow_answer_is_stamped_at_its_first_and_last_byte(scripted_server: Start) -> None:
    early, late = answer(b"0123456789")[:-1], answer(b"0123456789")[-1:]

    def script(request: Request) -> Sequence[Step]:
        return [Send(early), Read(), Send(late)]

    visit = drive(scripted_server(script).port)
    assert visit.outcomes == ["ok"]
    # The last byte is held back until the others were read: the gap may be short, but never nothing.
    assert visit.column("first_byte_ns")[0] < visit.column("end_ns")[0]
    assert_times_in_order(visit)


@pytest.mark.parametrize("behind", [b"", b"HTTP/1.1 200"])
def test_an_answer_that_is_announced_begins_with_itself(scripted_server: Start, behind: bytes) -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    began_ns: list[int] = []

    def said(_request: Request) -> Iterator[Step]:
        yield Send(hint)
        yield Read()
        began_ns.append(time.monotonic_ns())
        if behind:
            yield Send(hint + behind)
            yield Read()
        yield Send(answer().removeprefix(behind))

    visit = drive(scripted_server(said).port)
    [first_ns], [end_ns] = visit.column("first_byte_ns"), visit.column("end_ns")
    assert visit.outcomes == ["ok"]
    assert began_ns[0] < first_ns <= end_ns
    assert (first_ns < end_ns) is bool(behind)


def test_stray_bytes_are_not_the_next_answer(scripted_server: Start) -> None:
    stray = b"HTTP/1.1 299 Stray\r\nContent-Length: 0\r\n\r\n"

    def script(request: Request) -> Sequence[Step]:
        return [Send(answer() + (stray if request.number == 0 else b""))]

    visit = drive(scripted_server(script).port, count=6)
    assert 299 not in visit.column("status")


def test_a_server_that_closes_unannounced_costs_a_connection_not_the_run(scripted_server: Start) -> None:
    server = scripted_server(steps(Send(answer()), Close()))
    visit = drive(server.port, count=20)
    assert visit.outcome["rows"] == 20
    assert set(visit.outcomes) <= {"ok", "truncated"}
    assert len(server.requests) >= visit.outcomes.count("ok") > 0
    assert_times_in_order(visit)


def test_nobody_listens(scripted_server: Start) -> None:
    # Bound and not listening: nobody else can have the port meanwhile.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        visit = drive(held.getsockname()[1], count=4, load=closed(2))
    assert visit.outcomes == ["connect_error"] * 4
    assert visit.column("status") == [None] * 4
    assert visit.column("first_byte_ns") == [None] * 4
    assert "refused" in visit.outcome["errors"][0]["message"].lower()


def test_the_request_is_what_was_asked_for(scripted_server: Start) -> None:
    server = scripted_server(steps(Send(answer())))
    visit = drive(
        server.port,
        count=4,
        method="POST",
        path="/a/b?c=d",
        headers=[["X-First", "1"], ["Content-Type", "application/json"]],
        segments=[
            {"static": '{"n": '},
            {"counter": {"start": 5}},
            {"static": ', "f": "'},
            {"field": 0},
            {"static": '"}'},
        ],
        rows=[["é".encode()], [b"x" * 100_000]],
    )
    assert visit.outcomes == ["ok"] * 4
    wide = b"x" * 100_000
    expected = [b'{"n": %d, "f": "%s"}' % (5 + k, "é".encode() if k % 2 == 0 else wide) for k in range(4)]
    assert [request.body for request in server.requests] == expected
    assert visit.column("row") == [0, 1, 0, 1]
    for request, sent in zip(server.requests, visit.column("bytes_out"), strict=True):
        assert request.start_line == "POST /a/b?c=d HTTP/1.1"
        assert request.header("host") == f"127.0.0.1:{server.port}"
        assert request.header("content-length") == str(len(request.body))
        assert (request.header("x-first"), request.header("content-type")) == ("1", "application/json")
        assert sent == len(request.head) + 4 + len(request.body)


def test_every_slot_keeps_one_request_in_flight(scripted_server: Start) -> None:
    # Nobody is answered before all have asked, so fewer than 8 in flight would never end.
    together = threading.Barrier(8)

    def script(request: Request) -> Sequence[Step]:
        together.wait(30)
        return [Send(answer())]

    visit = drive(scripted_server(script).port, count=80, load=closed(8))
    assert visit.outcomes == ["ok"] * 80
    assert visit.column("seq") == list(range(80))
    assert visit.rows["conn"].n_unique() == 8


def test_the_first_failure_ends_a_level_that_allows_none(scripted_server: Start) -> None:
    def script(request: Request) -> Sequence[Step]:
        return [Send(answer(status="500 X") if request.number == 9 else answer())]

    visit = drive(scripted_server(script).port, count=1000, stop={"max_error_share": 0.0})
    assert visit.outcome["stop_reason"] == "errors"
    assert visit.outcomes == ["ok"] * 9 + ["http_error"]
