"""The way that creations take: answers in every form that HTTP has, connections that end, credentials that change."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gpusize.base.errors import TargetError
from gpusize.cluster.access.api import Answer, connect
from tests.cluster.api_double import ApiDouble

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def config_of(folder: Path, url: str, **user: Any) -> str:
    file = folder / "config"
    content = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    file.write_text(json.dumps(content))
    return str(file)


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return head, await reader.readexactly(length)


def against(tmp_path: Path, serve: Serve, times: int = 1) -> tuple[list[Answer | TargetError], int]:
    """Post so often to a server that is written out here; the answers, and how many connections it saw."""
    connections = 0

    async def run() -> list[Answer | TargetError]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal connections
            connections += 1
            try:
                await serve(reader, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        found: list[Answer | TargetError] = []
        async with connect(config_of(tmp_path, f"http://127.0.0.1:{port}/prefix/", token="t")) as api:
            for _ in range(times):
                try:
                    found.append(await api.post("/api/v1/pods", b'{"a": 1}', accept="application/x"))
                except TargetError as problem:
                    found.append(problem)
        server.close()
        return found

    return asyncio.run(run()), connections


def answering(text: bytes, *, pieces: int = 1, times: int = 10**6) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(times):
            await read_request(reader)
            step = -(-len(text) // pieces)
            for at in range(0, len(text), step):
                writer.write(text[at : at + step])
                await writer.drain()
                await asyncio.sleep(0)

    return serve


PLAIN = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nRetry-After: 3\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"


def test_what_is_sent_is_what_was_asked_for(tmp_path: Path) -> None:
    seen: list[tuple[bytes, bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(PLAIN)
        await writer.drain()

    against(tmp_path, serve)
    head, body = seen[0]
    lines = head.decode().strip().split("\r\n")
    assert lines[0] == "POST /prefix/api/v1/pods HTTP/1.1"
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    assert headers["accept"] == "application/x"
    assert headers["authorization"] == "bearer t"
    assert headers["content-type"] == "application/json"
    assert headers["host"].startswith("127.0.0.1:")
    assert body == b'{"a": 1}'


@pytest.mark.parametrize("pieces", [1, 3, 100])
@pytest.mark.parametrize("text", [PLAIN, CHUNKED])
def test_answers_come_in_any_form_and_in_any_pieces(tmp_path: Path, text: bytes, pieces: int) -> None:
    found, connections = against(tmp_path, answering(text, pieces=pieces), times=3)
    assert [each.status for each in found if isinstance(each, Answer)] == [201] * 3
    assert {each.body for each in found if isinstance(each, Answer)} == {b"{}"}
    assert connections == 1


def test_a_server_that_closes_after_each_answer_gets_new_connections(tmp_path: Path) -> None:
    text = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
    found, connections = against(tmp_path, answering(text, times=1), times=3)
    assert [each.status for each in found if isinstance(each, Answer)] == [201] * 3
    assert connections == 3


@pytest.mark.parametrize(
    "text", [b"", b"HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\n{}", b"HTTP/1.1 201 Crea", b"no http\r\n\r\n"]
)
def test_an_answer_that_breaks_off_is_none(tmp_path: Path, text: bytes) -> None:
    found, connections = against(tmp_path, answering(text, times=1), times=2)
    assert all(isinstance(each, TargetError) for each in found)
    assert connections == 2


def test_headers_are_read_by_their_names_in_lower_case(tmp_path: Path) -> None:
    (answer,), _ = against(tmp_path, answering(PLAIN))
    assert isinstance(answer, Answer)
    assert answer.retry_after_s == 3.0


def test_a_token_that_is_refused_is_asked_for_again(tmp_path: Path) -> None:
    good = ["first"]
    (tmp_path / "token").write_text("first")

    async def run() -> list[int]:
        async with connect(double.kubeconfig(tmp_path, tokenFile="token")) as api:
            body = [b'{"metadata": {"name": "p%d"}}' % each for each in range(4)]
            path = "/api/v1/namespaces/default/pods"
            found = [(await api.post(path, each)).status for each in body[:2]]
            good[0] = "second"
            (tmp_path / "token").write_text("second")
            return [*found, *[(await api.post(path, each)).status for each in body[2:]]]

    with ApiDouble(token=lambda: good[0]) as double:
        assert asyncio.run(run()) == [201] * 4
    # One was refused, then again with the token that the general client still had; the next had the new one at once.
    assert [asked.headers["authorization"] for asked in double.asked] == [
        *["Bearer first"] * 4,
        *["Bearer second"] * 2,
    ]


def test_no_proxy_of_the_environment_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ApiDouble() as double:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.delenv("no_proxy", raising=False)

        async def run() -> tuple[int, int]:
            async with connect(config_of(tmp_path, double.url)) as api:
                made = await api.post("/api/v1/namespaces/default/pods", b'{"metadata": {"name": "p"}}')
                return made.status, (await api.ask("GET", "/version")).status

        assert asyncio.run(run())[0] == 201
    assert len(double.asked) == 2
