"""TLS with the certificate that ``openssl req -x509`` makes: an authority that is also the server's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.servers.drive import drive
from tests.servers.nginx import NGINX, Nginx
from tests.servers.tls import OPENSSL

pytestmark = pytest.mark.skipif(NGINX is None or OPENSSL is None, reason="nginx or openssl is not installed")


def self_signed(folder: Path, name: str) -> tuple[Path, Path]:
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = [
        OPENSSL or "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
    ]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-days", "30"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


def test_the_servers_own_certificate_can_be_named(tmp_path: Path) -> None:
    mine, key = self_signed(tmp_path, "mine")
    other, _ = self_signed(tmp_path, "other")
    block = f"ssl_certificate {mine}; ssl_certificate_key {key}; location / {{ return 200 'hello'; }}"
    folder = tmp_path / "nginx"
    folder.mkdir()
    with Nginx(folder, block, ssl=True) as server:

        def outcomes(ca: Path, name: str) -> list[str]:
            tls = {"server_name": name, "ca_file": str(ca), "insecure": False}
            return drive(server.port, count=2, tls=tls).outcomes

        assert outcomes(mine, "localhost") == ["ok"] * 2
        assert outcomes(mine, "elsewhere") == ["tls_error"] * 2
        assert outcomes(other, "localhost") == ["tls_error"] * 2
