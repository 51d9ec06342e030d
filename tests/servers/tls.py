"""A certificate authority of the tests' own, and a server certificate for loopback that it has signed."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["OPENSSL", "Certificates", "make_certificates", "sign"]

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


def sign(authority: Certificates, name: str, how: str = "", organisation: str = "") -> tuple[Path, Path]:
    """A certificate for this name and its key: signed by the authority, ``expired`` likewise, or by ``itself``.

    The organisation of a client's certificate is its group in Kubernetes.
    """
    folder = authority.ca.parent
    file, key = folder / f"{name}{how}.pem", folder / f"{name}{how}.key"
    if file.exists():
        return file, key
    of = f"/O={organisation}" if organisation else ""
    names = ["-subj", f"{of}/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    made = ["-keyout", str(key), "-out", str(file)]
    by = ["-CA", str(authority.ca), "-CAkey", str(folder / "ca.key")]
    if how == "expired":
        _sign_the_past(authority, name, file, key)
    elif how == "itself":
        _openssl(["req", "-x509", *_CURVE, "-days", "9"], names, made)
    else:
        _openssl(
            ["req", "-x509", *_CURVE, "-days", "9", "-addext", "basicConstraints=critical,CA:FALSE"], names, by, made
        )
    return file, key


def _sign_the_past(authority: Certificates, name: str, file: Path, key: Path) -> None:
    """Only ``openssl ca`` signs for a time that is over; it wants a folder with a list of what it signed."""
    folder = authority.ca.parent
    request, rules, listed = (folder / f"{name}.{ending}" for ending in ("request", "rules", "list"))
    listed.touch()
    rules.write_text(
        "[ca]\ndefault_ca=own\n[own]\ndefault_md=sha256\npolicy=any\nx509_extensions=for\nrand_serial=yes\n"
        f"unique_subject=no\nnew_certs_dir={folder}\ndatabase={listed}\n"
        f"[any]\ncommonName=supplied\n[for]\nsubjectAltName=DNS:{name}\n",
        encoding="ascii",
    )
    _openssl(["req", "-new", *_CURVE, "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(request)])
    _openssl(
        ["ca", "-batch", "-notext", "-config", str(rules), "-in", str(request), "-out", str(file)],
        ["-cert", str(authority.ca), "-keyfile", str(folder / "ca.key")],
        ["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"],
    )


def _openssl(*words: list[str]) -> None:
    command = [OPENSSL or "openssl", *(word for part in words for word in part)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
