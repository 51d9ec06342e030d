"""Fixtures of the servers. A folder of tests uses them by importing them in its conftest.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.servers.nginx import NGINX, Nginx
from tests.servers.scripted import Script, ScriptedServer
from tests.servers.tls import OPENSSL, Certificates, make_certificates

__all__ = [
    "NGINX_FILES",
    "certificates",
    "nginx_http2_server",
    "nginx_http2_tls_server",
    "nginx_server",
    "nginx_tls_server",
    "scripted_server",
]

NGINX_FILES = {"empty.txt": 0, "small.txt": 13, "page.json": 4096, "large.bin": 3_000_000}
"""Files that nginx serves, with their sizes in bytes."""

KEEPALIVE_REQUESTS = 100
"""After so many requests nginx closes a connection."""

SERVER = """
        root {root};
        keepalive_requests {keepalive};
        location = /404 {{ return 404 "no such thing"; }}
        location = /500 {{ return 500 "broken"; }}
        location = /503 {{ return 503 "try later"; }}
        location = /204 {{ return 204; }}
        location = /moved {{ return 302 /small.txt; }}
        location = /created {{ return 201 "made"; }}
        # A filter that may change the length: nginx drops Content-Length and sends chunks.
        location = /chunked.json {{ sub_filter_types *; sub_filter "absent" "absent"; alias {root}/page.json; }}
        location = /chunked.bin {{ sub_filter_types *; sub_filter "absent" "absent"; alias {root}/large.bin; }}
        location = /closing.txt {{ keepalive_timeout 0; alias {root}/small.txt; }}
        # Both read the request's body; the second refuses one of more than 1 KiB.
        location = /form {{ client_max_body_size 1m; proxy_pass $scheme://127.0.0.1:$server_port/created; }}
        location = /narrow {{ client_max_body_size 1k; proxy_pass $scheme://127.0.0.1:$server_port/created; }}
"""


def _content(size: int) -> bytes:
    return bytes(32 + at % 90 for at in range(size))


def _root(folder: Path) -> Path:
    root = folder / "files"
    root.mkdir(parents=True)
    for name, size in NGINX_FILES.items():
        (root / name).write_bytes(_content(size))
    return root


def _need(tool: str | None, what: str) -> None:
    if tool is None:
        pytest.skip(f"{what} is not installed")


@pytest.fixture(scope="session")
def nginx_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    """nginx from Debian on loopback, in the clear."""
    _need(NGINX, "nginx")
    folder = tmp_path_factory.mktemp("nginx")
    with Nginx(folder, SERVER.format(root=_root(folder), keepalive=KEEPALIVE_REQUESTS)) as server:
        yield server


@pytest.fixture(scope="session")
def nginx_http2_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    """The same nginx with HTTP/2 in the clear."""
    _need(NGINX, "nginx")
    folder = tmp_path_factory.mktemp("nginx-http2")
    files = SERVER.format(root=_root(folder), keepalive=KEEPALIVE_REQUESTS)
    with Nginx(folder, files, http2=True) as server:
        yield server


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority and a server certificate for loopback."""
    _need(OPENSSL, "openssl")
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def nginx_tls_server(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Nginx]:
    """The same nginx with TLS."""
    _need(NGINX, "nginx")
    folder = tmp_path_factory.mktemp("nginx-tls")
    tls = f"ssl_certificate {certificates.certificate}; ssl_certificate_key {certificates.key};"
    files = SERVER.format(root=_root(folder), keepalive=KEEPALIVE_REQUESTS)
    with Nginx(folder, tls + files, ssl=True) as server:
        yield server


@pytest.fixture(scope="session")
def nginx_http2_tls_server(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Nginx]:
    """The same nginx with HTTP/2 over TLS."""
    _need(NGINX, "nginx")
    folder = tmp_path_factory.mktemp("nginx-http2-tls")
    tls = f"ssl_certificate {certificates.certificate}; ssl_certificate_key {certificates.key};"
    files = SERVER.format(root=_root(folder), keepalive=KEEPALIVE_REQUESTS)
    with Nginx(folder, tls + files, ssl=True, http2=True) as server:
        yield server


@pytest.fixture
def scripted_server() -> Iterator[Callable[[Script], ScriptedServer]]:
    """Starts servers that follow a script; they are closed at the test's end."""
    started: list[ScriptedServer] = []

    def start(script: Script) -> ScriptedServer:
        started.append(ScriptedServer(script))
        return started[-1]

    yield start
    for server in started:
        server.close()
