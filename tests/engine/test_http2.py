"""HTTP/2 and several addresses, against servers that nobody here wrote."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_http1 import assert_times_in_order
from tests.servers.drive import Visit, closed, drive, open_loop, probe
from tests.servers.fixtures import KEEPALIVE_REQUESTS, NGINX_FILES
from tests.servers.nginx import Nginx
from tests.servers.tls import Certificates

STREAMS = [1, 8]


def over_http2(port: int, **more: Any) -> Visit:
    return drive(port, transport="http2", **more)


def by_name(certificates: Certificates) -> dict[str, object]:
    return {"server_name": "localhost", "ca_file": str(certificates.ca), "insecure": False}


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("name", NGINX_FILES)
def test_files(nginx_http2_server: Nginx, name: str, streams: int) -> None:
    visit = over_http2(nginx_http2_server.port, count=20, load=closed(4), path=f"/{name}", streams=streams)
    assert visit.outcomes == ["ok"] * 20, visit.outcome["errors"]
    assert visit.column("bytes_in") == [NGINX_FILES[name]] * 20
    assert visit.rows["conn"].n_unique() == (4 if streams == 1 else 1)
    assert_times_in_order(visit)


@pytest.mark.parametrize("path, status", [("/404", 404), ("/503", 503), ("/moved", 302)])
def test_errors(nginx_http2_server: Nginx, path: str, status: int) -> None:
    visit = over_http2(nginx_http2_server.port, count=6, path=path)
    assert visit.outcomes == ["http_error"] * 6
    assert visit.column("status") == [status] * 6
    assert visit.rows["conn"].n_unique() == 1


@pytest.mark.parametrize("streams", STREAMS)
def test_connections_that_nginx_closes_lose_no_request(nginx_http2_server: Nginx, streams: int) -> None:
    count = 20 * KEEPALIVE_REQUESTS
    visit = over_http2(nginx_http2_server.port, count=count, load=closed(8), path="/small.txt", streams=streams)
    assert visit.outcome["outcomes"] == {"ok": count}, visit.outcome["errors"]
    assert visit.outcome["reconnects"] > 0
    assert visit.column("seq") == list(range(count))


@pytest.mark.parametrize("streams", STREAMS)
def test_posts(nginx_http2_tls_server: Nginx, certificates: Certificates, streams: int) -> None:
    body = b"x" * 200_000
    more: dict[str, Any] = {"method": "POST", "path": "/form", "streams": streams, "tls": by_name(certificates)}
    body_of = {"segments": [{"field": 0}], "rows": [[body]]}
    visit = over_http2(nginx_http2_tls_server.port, count=8, load=closed(4), **body_of, **more)
    assert visit.column("status") == [201] * 8, visit.outcome["errors"]
    assert visit.column("bytes_out") == [len(body)] * 8


@pytest.mark.parametrize("streams", STREAMS)
def test_a_body_that_nginx_refuses(nginx_http2_server: Nginx, streams: int) -> None:
    more = {"method": "POST", "path": "/narrow", "segments": [{"field": 0}], "rows": [[b"x" * 500_000]]}
    visit = over_http2(nginx_http2_server.port, count=8, load=closed(4), streams=streams, **more)
    assert visit.outcomes == ["http_error"] * 8
    assert visit.column("status") == [413] * 8


def test_head(nginx_http2_server: Nginx) -> None:
    visit = over_http2(nginx_http2_server.port, count=5, method="HEAD", path="/large.bin")
    assert visit.outcomes == ["ok"] * 5
    assert visit.column("bytes_in") == [0] * 5


@pytest.mark.parametrize("streams", STREAMS)
def test_over_tls(nginx_http2_tls_server: Nginx, certificates: Certificates, streams: int) -> None:
    for name, count in [("page.json", 300), ("large.bin", 8)]:
        more = {"path": f"/{name}", "streams": streams, "tls": by_name(certificates)}
        visit = over_http2(nginx_http2_tls_server.port, count=count, load=closed(4), **more)
        assert visit.outcome["outcomes"] == {"ok": count}, visit.outcome["errors"]
        assert visit.column("bytes_in") == [NGINX_FILES[name]] * count


def test_a_server_without_http2_is_recognised(
    nginx_server: Nginx, nginx_tls_server: Nginx, certificates: Certificates
) -> None:
    record = probe(nginx_server.port, transport="http2")
    assert record["outcome"] == "protocol_error"
    assert "HTTP/1.1" in record["message"]
    record = probe(nginx_tls_server.port, transport="http2", tls=by_name(certificates))
    assert record["outcome"] == "tls_error"


def test_an_open_loop_shares_connections(nginx_http2_server: Nginx) -> None:
    visit = over_http2(nginx_http2_server.port, count=500, load=open_loop(1000.0), path="/small.txt", streams=8)
    assert visit.outcome["outcomes"] == {"ok": 500}, visit.outcome["errors"]
    assert_times_in_order(visit)


@pytest.mark.parametrize("balance", ["round_robin", "least_outstanding"])
def test_several_addresses(nginx_server: Nginx, nginx_tls_server: Nginx, balance: str) -> None:
    insecure = {"server_name": "localhost", "ca_file": None, "insecure": True}
    replicas = [{"host": "127.0.0.1", "port": nginx_tls_server.port, "tls": insecure}]
    more: dict[str, Any] = {"path": "/small.txt", "replicas": replicas, "balance": balance}
    visit = drive(nginx_server.port, count=400, load=closed(4), **more)
    assert visit.outcome["outcomes"] == {"ok": 400}, visit.outcome["errors"]
    served = visit.rows["target"].to_list()
    if balance == "round_robin":
        assert served == [0, 1] * 200
    assert set(served) == {0, 1}


def test_an_address_that_is_down(nginx_server: Nginx) -> None:
    # Bound and not listening: nobody else can have the port meanwhile.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        down = {"host": "127.0.0.1", "port": held.getsockname()[1], "tls": None}
        visit = drive(nginx_server.port, count=10, path="/small.txt", replicas=[down])
    assert visit.outcomes == ["ok", "connect_error"] * 5
    assert visit.column("target") == [0, 1] * 5


NGHTTPD = shutil.which("nghttpd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def _listens(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def nghttpd(tmp_path: Path) -> Iterator[int]:
    """nghttpd from Debian, which allows 100 streams and has no HTTP/1.1; its port."""
    if NGHTTPD is None:
        pytest.skip("nghttpd is not installed")
    (tmp_path / "small.txt").write_text("hello, world!", encoding="utf-8")
    with socket.socket() as held:
        # Bound for as long as the server runs, so that nobody else gets the port before it listens there.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port = int(held.getsockname()[1])
        command = [NGHTTPD, "--no-tls", "--address=127.0.0.1", f"--htdocs={tmp_path}", "--trailer=x-end: 1", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while process.poll() is None and not _listens(port):
                os.sched_yield()
            yield port
        finally:
            process.terminate()
            process.wait(timeout=60)


@pytest.mark.optional_in_ci
@pytest.mark.parametrize("streams", [1, 32])
def test_another_implementation(nghttpd: int, streams: int) -> None:
    visit = over_http2(nghttpd, count=2000, load=closed(32), path="/small.txt", streams=streams)
    assert visit.outcome["outcomes"] == {"ok": 2000}, visit.outcome["errors"]
    assert visit.rows["conn"].n_unique() == 32 // streams
    assert_times_in_order(visit)


def test_grpc_to_a_server_that_has_none(nginx_http2_server: Nginx) -> None:
    from gpusize import _core
    from gpusize.base import errors

    target = {"host": "127.0.0.1", "port": nginx_http2_server.port, "path": "/"}
    with pytest.raises(errors.TargetError, match="404"):
        _core.grpc_call(json.dumps(target), "/nowhere", b"", 5_000_000_000)
    visit = drive(nginx_http2_server.port, count=3, transport="grpc", path="/nowhere")
    assert visit.outcomes == ["http_error"] * 3
