"""The servers for tests, tried with the standard library's client: no fault of theirs may look like the engine's."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Callable

import pytest

from tests.servers.fixtures import NGINX_FILES
from tests.servers.nginx import Nginx
from tests.servers.scripted import Close, Reset, Script, ScriptedServer, Send, Step, Wait, answer, chunked
from tests.servers.tls import Certificates


def get(port: int, path: str, method: str = "GET", body: bytes | None = None) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize("name", NGINX_FILES)
def test_nginx_serves_files(nginx_server: Nginx, name: str) -> None:
    status, headers, body = get(nginx_server.port, f"/{name}")
    assert (status, len(body), int(headers["content-length"])) == (200, NGINX_FILES[name], NGINX_FILES[name])


@pytest.mark.parametrize("path", ["/404", "/500", "/503", "/204"])
def test_nginx_answers_with_a_status(nginx_server: Nginx, path: str) -> None:
    assert get(nginx_server.port, path)[0] == int(path[1:])


def test_nginx_does_what_the_tests_need(nginx_server: Nginx) -> None:
    status, headers, body = get(nginx_server.port, "/chunked.bin")
    assert (status, headers.get("transfer-encoding"), len(body)) == (200, "chunked", NGINX_FILES["large.bin"])
    assert get(nginx_server.port, "/moved")[0] == 302
    assert get(nginx_server.port, "/closing.txt")[1]["connection"] == "close"
    assert get(nginx_server.port, "/form", "POST", b"x" * 200_000)[0] == 201
    assert get(nginx_server.port, "/narrow", "POST", b"x" * 5000)[0] == 413


def test_nginx_with_tls_is_verified_by_our_authority(nginx_tls_server: Nginx, certificates: Certificates) -> None:
    context = ssl.create_default_context(cafile=str(certificates.ca))
    connection = http.client.HTTPSConnection("localhost", nginx_tls_server.port, timeout=10, context=context)
    connection.request("GET", "/small.txt")
    assert len(connection.getresponse().read()) == 13
    connection.close()


def test_scripted_pieces_make_the_same_answer(scripted_server: Callable[[Script], ScriptedServer]) -> None:
    response = answer(
        chunked([b"abc", b"defg"], extension=";q", trailer="A: b\r\n"),
        headers=["Transfer-Encoding: chunked"],
        length=False,
    )
    for piece in (None, 1, 5):
        server = scripted_server(lambda request, piece=piece: [Send(response, piece)])  # type: ignore[misc]
        assert get(server.port, "/x", "POST", b"body")[2] == b"abcdefg"
        (request,) = server.requests
        assert (request.start_line, request.header("HOST"), request.body) == (
            "POST /x HTTP/1.1",
            f"127.0.0.1:{server.port}",
            b"body",
        )


def test_scripted_requests_on_one_connection_are_counted(scripted_server: Callable[[Script], ScriptedServer]) -> None:
    server = scripted_server(lambda request: [Send(answer(str(request.number).encode()))])
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n")
        received = b""
        while not received.endswith(b"1"):
            received += client.recv(1000)
    assert received == answer(b"0") + answer(b"1")
    assert [(request.connection, request.number) for request in server.requests] == [(0, 0), (0, 1)]


def test_scripted_ends(scripted_server: Callable[[Script], ScriptedServer]) -> None:
    asked = threading.Event()
    ends: dict[str, Step] = {"/close": Close(), "/reset": Reset()}
    server = scripted_server(lambda request: [Wait(asked), ends[request.start_line.split()[1]]])
    asked.set()
    with pytest.raises(http.client.RemoteDisconnected):
        get(server.port, "/close")
    with pytest.raises(ConnectionResetError):
        get(server.port, "/reset")
