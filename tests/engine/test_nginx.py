"""The engine against a server that nobody here wrote."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.engine.test_http1 import assert_times_in_order
from tests.servers.drive import closed, drive, open_loop, probe
from tests.servers.fixtures import KEEPALIVE_REQUESTS, NGINX_FILES
from tests.servers.nginx import Nginx
from tests.servers.tls import Certificates


@pytest.mark.parametrize("name", NGINX_FILES)
def test_files(nginx_server: Nginx, name: str) -> None:
    visit = drive(nginx_server.port, count=20, load=closed(4), path=f"/{name}")
    assert visit.outcomes == ["ok"] * 20
    assert visit.column("status") == [200] * 20
    (size,) = set(visit.column("bytes_in"))
    assert NGINX_FILES[name] < size < NGINX_FILES[name] + 1000
    assert_times_in_order(visit)


@pytest.mark.parametrize("path", ["/404", "/500", "/503", "/moved", "/nowhere"])
def test_errors(nginx_server: Nginx, path: str) -> None:
    visit = drive(nginx_server.port, count=6, path=path)
    status = {"/moved": 302, "/nowhere": 404}.get(path) or int(path[1:])
    assert visit.outcomes == ["http_error"] * 6
    assert visit.column("status") == [status] * 6
    assert visit.outcome["errors"][0]["status"] == status
    assert visit.rows["conn"].n_unique() == 1


def test_the_servers_own_message_is_kept(nginx_server: Nginx) -> None:
    visit = drive(nginx_server.port, path="/503")
    assert "try later" in visit.outcome["errors"][0]["message"]


@pytest.mark.parametrize("path", ["/204", "/created"])
def test_other_successes(nginx_server: Nginx, path: str) -> None:
    visit = drive(nginx_server.port, count=4, path=path)
    assert visit.outcomes == ["ok"] * 4
    assert visit.column("status") == [201 if path == "/created" else 204] * 4


@pytest.mark.parametrize("name", ["page.json", "large.bin"])
def test_chunked(nginx_server: Nginx, name: str) -> None:
    visit = drive(nginx_server.port, count=4, load=closed(2), path=f"/chunked.{name.split('.')[1]}")
    assert visit.outcomes == ["ok"] * 4
    assert all(NGINX_FILES[name] < size < 1.01 * NGINX_FILES[name] + 1000 for size in visit.column("bytes_in"))


def test_head(nginx_server: Nginx) -> None:
    visit = drive(nginx_server.port, count=5, method="HEAD", path="/large.bin")
    assert visit.outcomes == ["ok"] * 5
    assert max(visit.column("bytes_in")) < 1000
    assert visit.rows["conn"].n_unique() == 1


def test_connections_that_nginx_closes_are_opened_again(nginx_server: Nginx) -> None:
    count = 2 * KEEPALIVE_REQUESTS + 50
    visit = drive(nginx_server.port, count=count, path="/small.txt")
    assert visit.outcomes == ["ok"] * count
    assert visit.rows["conn"].n_unique() == 3
    assert_times_in_order(visit)


def test_without_keep_alive_each_request_has_its_connection(nginx_server: Nginx) -> None:
    visit = drive(nginx_server.port, count=30, load=closed(3), path="/closing.txt")
    assert visit.outcomes == ["ok"] * 30
    assert visit.rows["conn"].n_unique() == 30


def test_posts(nginx_server: Nginx) -> None:
    body = b"x" * 200_000
    visit = drive(nginx_server.port, count=4, method="POST", path="/form", segments=[{"field": 0}], rows=[[body]])
    assert visit.outcomes == ["ok"] * 4
    assert visit.column("status") == [201] * 4
    assert min(visit.column("bytes_out")) > len(body)


def test_a_body_that_nginx_refuses(nginx_server: Nginx) -> None:
    body = b"x" * 5000
    visit = drive(nginx_server.port, count=3, method="POST", path="/narrow", segments=[{"field": 0}], rows=[[body]])
    assert visit.outcomes == ["http_error"] * 3
    assert visit.column("status") == [413] * 3


def test_many_at_once(nginx_server: Nginx) -> None:
    visit = drive(nginx_server.port, count=5000, load=closed(32), path="/small.txt")
    assert visit.outcome["outcomes"] == {"ok": 5000}
    assert visit.column("seq") == list(range(5000))
    assert visit.rows["conn"].n_unique() >= 32
    assert_times_in_order(visit)


def test_an_open_loop_keeps_its_schedule(nginx_server: Nginx) -> None:
    visit = drive(nginx_server.port, count=500, load=open_loop(1000.0), path="/small.txt")
    assert visit.outcome["outcomes"] == {"ok": 500}
    due = visit.column("due_ns")
    assert {later - earlier for earlier, later in pairwise(due)} == {1_000_000}
    assert_times_in_order(visit)


def test_probe(nginx_server: Nginx) -> None:
    record = probe(nginx_server.port, path="/500")
    assert (record["outcome"], record["status"]) == ("http_error", 500)
    assert "broken" in record["message"]


def tls(
    certificates: Certificates | None, *, server_name: str = "localhost", insecure: bool = False
) -> dict[str, object]:
    ca_file = str(certificates.ca) if certificates else None
    return {"server_name": server_name, "ca_file": ca_file, "insecure": insecure}


@pytest.mark.parametrize("server_name", ["localhost", "127.0.0.1"])
def test_tls_that_verifies(nginx_tls_server: Nginx, certificates: Certificates, server_name: str) -> None:
    visit = drive(nginx_tls_server.port, count=250, path="/page.json", tls=tls(certificates, server_name=server_name))
    assert visit.outcomes == ["ok"] * 250
    assert visit.rows["conn"].n_unique() == 3
    assert all(NGINX_FILES["page.json"] < size < NGINX_FILES["page.json"] + 1000 for size in visit.column("bytes_in"))
    handshakes = [ns for ns in visit.column("tls_ns") if ns is not None]
    assert handshakes
    assert min(handshakes) > 0
    assert_times_in_order(visit)


def test_tls_carries_large_bodies(nginx_tls_server: Nginx, certificates: Certificates) -> None:
    visit = drive(nginx_tls_server.port, count=4, load=closed(2), path="/large.bin", tls=tls(certificates))
    assert visit.outcomes == ["ok"] * 4
    assert min(visit.column("bytes_in")) > NGINX_FILES["large.bin"]


def test_tls_of_an_unknown_authority_is_refused(nginx_tls_server: Nginx) -> None:
    visit = drive(nginx_tls_server.port, count=2, tls=tls(None))
    assert visit.outcomes == ["tls_error"] * 2
    assert visit.column("sent_ns") == [None] * 2


def test_tls_for_another_name_is_refused(nginx_tls_server: Nginx, certificates: Certificates) -> None:
    visit = drive(nginx_tls_server.port, tls=tls(certificates, server_name="example.org"))
    assert visit.outcomes == ["tls_error"]


def test_tls_without_verification_when_asked(nginx_tls_server: Nginx) -> None:
    visit = drive(nginx_tls_server.port, path="/small.txt", tls=tls(None, insecure=True))
    assert visit.outcomes == ["ok"]


def test_tls_to_a_server_in_the_clear(nginx_server: Nginx, certificates: Certificates) -> None:
    visit = drive(nginx_server.port, tls=tls(certificates))
    assert visit.outcomes == ["tls_error"]
