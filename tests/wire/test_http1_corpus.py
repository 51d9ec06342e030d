"""The corpus of HTTP/1.1 responses, as two other implementations read it: h11 is strict, http.client is not."""

from __future__ import annotations

import http.client
import io
import json
from pathlib import Path
from typing import Any

import h11
import pytest

CORPUS = Path(__file__).parents[2] / "rust" / "gpusize-engine" / "tests" / "corpus" / "http1"

CODINGS = "h11 knows no coding but chunked"
BOUNDS = "our bound"
STRICTER = "h11 takes it, the RFC does not"
H11_DIFFERS = {
    "bodies: until it closes, beyond the bound": BOUNDS,
    "chunked: a CR inside the size line": STRICTER,
    "chunked: a body beyond the bound": BOUNDS,
    "chunked: a coding before chunked": CODINGS,
    "chunked: an endless size line": BOUNDS,
    "chunked: an endless trailer": BOUNDS,
    "chunked: an extension in quotes": "h11 takes no spaces around extensions",
    "chunked: an obs-fold in the list": CODINGS,
    "chunked: an unknown coding alone": CODINGS,
    "chunked: chunked is not last": CODINGS,
    "chunked: endless trailers": BOUNDS,
    "chunked: two fields, chunked last": CODINGS,
    "heads: a control character in a value": STRICTER,
    "heads: a head one byte beyond the bound": BOUNDS,
    "heads: a hundred and one fields": BOUNDS,
    "heads: a status beyond 599": STRICTER,
    "heads: an empty line before it": "harmless, and refused by h11",
    "heads: another version": STRICTER,
    "length: a body beyond the bound": BOUNDS,
    "length: a list of equal lengths": "may be refused",
}

INTERIM = "http.client skips 100 only"
CLIENT_DIFFERS = {
    "bodies: an interim response before HEAD's": INTERIM,
    "bodies: several interim responses": INTERIM,
    "bodies: two hundred interim responses": INTERIM,
    "chunked: a coding before chunked": CODINGS,
    "chunked: an obs-fold in the list": CODINGS,
    "chunked: two fields, chunked last": CODINGS,
    "heads: a hundred fields": BOUNDS,
    "heads: an empty line before it": "harmless, and refused by http.client",
}

Answer = tuple[int, bytes]


def _bytes(wire: Any) -> bytes:
    parts = [wire] if isinstance(wire, str) else wire
    return b"".join((p if isinstance(p, str) else p[0] * p[1]).encode("latin-1") for p in parts)


def _cases() -> dict[str, dict[str, Any]]:
    files = sorted(CORPUS.glob("*.json"))
    return {f"{file.stem}: {case['name']}": case for file in files for case in json.loads(file.read_text())}


CASES = _cases()
VALID = {name: case for name, case in CASES.items() if "error" not in case["want"]}


def _wanted(case: dict[str, Any]) -> Answer | None:
    want = case["want"]
    return None if "error" in want else (want["status"], _bytes(want.get("body", "")))


def _by_h11(wire: bytes, head: bool) -> Answer | None:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=16_384)
    connection.send(h11.Request(method="HEAD" if head else "GET", target="/", headers=[("Host", "h")]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(wire)
    status, body, closed = 0, b"", False
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError:
            return None
        if isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            return status, body
        elif event is h11.NEED_DATA and not closed:
            closed = True
            connection.receive_data(b"")
        elif not isinstance(event, h11.InformationalResponse):
            return None


class _Socket:
    """As much of a socket as http.client asks for."""

    def __init__(self, wire: bytes) -> None:
        self.wire = wire

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self.wire)


def _by_http_client(wire: bytes, head: bool) -> Answer | None:
    response = http.client.HTTPResponse(_Socket(wire), method="HEAD" if head else "GET")  # type: ignore[arg-type]
    try:
        response.begin()
        return response.status, response.read()
    except (http.client.HTTPException, ValueError):
        return None
    finally:
        response.close()


@pytest.mark.parametrize("name", CASES)
def test_h11_reads_the_corpus_alike(name: str) -> None:
    case = CASES[name]
    alike = _by_h11(_bytes(case["wire"]), case.get("head", False)) == _wanted(case)
    assert alike == (name not in H11_DIFFERS), H11_DIFFERS.get(name, case["why"])


@pytest.mark.parametrize("name", VALID)
def test_http_client_takes_what_is_valid(name: str) -> None:
    case = VALID[name]
    alike = _by_http_client(_bytes(case["wire"]), case.get("head", False)) == _wanted(case)
    assert alike == (name not in CLIENT_DIFFERS), CLIENT_DIFFERS.get(name, case["why"])


def test_every_difference_names_a_case() -> None:
    assert len(VALID) > 70
    assert set(H11_DIFFERS) <= set(CASES)
    assert set(CLIENT_DIFFERS) <= set(VALID)
