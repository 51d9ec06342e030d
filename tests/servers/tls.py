"""A certificate authority of the tests' own, and a server certificate for loopback that it has signed."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["OPENSSL", "Certificates", "make_certificates"]

OPENSSL = shutil.which("openssl")

_CURVE = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


@dataclass(frozen=True)
class Certificates:
    """Files in PEM: the authority's certificate, and the server's certificate and key."""

    ca: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path) -> Certificates:
    """Make both in ``folder``; the server's is for localhost and 127.0.0.1, valid for ten years."""
    made = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    ca_key = folder / "ca.key"
    _openssl(
        ["req", "-x509", *_CURVE, "-days", "3650", "-subj", "/CN=gpusize test authority"],
        ["-addext", "keyUsage=critical,keyCertSign", "-keyout", str(ca_key), "-out", str(made.ca)],
    )
    _openssl(
        [
            "req",
            "-x509",
            *_CURVE,
            "-days",
            "3650",
            "-subj",
            "/CN=localhost",
            "-CA",
            str(made.ca),
            "-CAkey",
            str(ca_key),
        ],
        ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"],
        ["-addext", "extendedKeyUsage=serverAuth", "-keyout", str(made.key), "-out", str(made.certificate)],
    )
    return made


def _openssl(*words: list[str]) -> None:
    command = [OPENSSL or "openssl", *(word for part in words for word in part)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
