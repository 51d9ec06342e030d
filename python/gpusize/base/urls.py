"""Addresses: what a URL must look like to be sent to, and whether a server answers there."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote, urlsplit

from gpusize.base.errors import UsageError
from gpusize.base.text import shown

if TYPE_CHECKING:
    import ssl

__all__ = ["Address", "address_of", "is_ok", "parse_url", "without_tls"]

_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_PORTS: Final = {"http": 80, "https": 443, "grpc": 8001, "grpcs": 8001}
_TLS: Final = {"https", "grpcs"}
_SECRET: Final = re.compile(
    r"(?:.*[-_.])?(?:key|token|secret|password|passwd|pwd|passphrase|sig|signature|apikey|code|auth|authorization|"
    r"credentials?|bearer|jwt)",
    re.IGNORECASE,
)
"""Names of fields of a query that hold secrets; ``code`` is that of Azure's functions."""
_ANSWER_S: Final = 5.0
_OK: Final = 200
_SAFE: Final = "/:@!$&'()*+,;=-._~%?"


@dataclass(frozen=True)
class Address:
    """Where a URL points.

    Args:
        tls: https.
        host: name or address, without the brackets of IPv6.
        port: TCP port.
        path: path and query, percent-encoded; empty when the URL has none.
    """

    tls: bool
    host: str
    port: int
    path: str

    @property
    def is_loopback(self) -> bool:
        """Whether the host is this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")

    def url(self, path: str | None = None) -> str:
        """The URL, with ``path`` instead of its own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == _PORTS["https" if self.tls else "http"] else f":{self.port}"
        return f"{'https' if self.tls else 'http'}://{host}{port}{self.path if path is None else path}"


def is_ok(url: str) -> bool:
    """Whether a server answers there with status 200 within 5 s."""
    import httpx

    try:
        verify = without_tls(url) or True
        return httpx.get(url, timeout=_ANSWER_S, trust_env=False, verify=verify).status_code == _OK
    except httpx.HTTPError:
        return False


def without_tls(url: str) -> ssl.SSLContext | None:
    """What a client of an address without TLS checks certificates with: it trusts nobody. None for other addresses.

    Nobody shows a certificate there, so the system's need not be read, which most of a client's making would be.
    """
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http://") else None


def parse_url(url: str) -> Address:
    """Take a URL apart; ``grpc`` is plain HTTP/2, ``grpcs`` the same over TLS, both on port 8001 by default.

    Raises:
        UsageError: not an http, https or grpc URL with a host, or one with a user, a password or a fragment.
    """
    text = url.strip()

    def refuse(what: str, todo: str) -> UsageError:
        # Whatever stands before an @ may be a password.
        safe = re.sub(r"//[^/?#]*@", "//…@", text)
        return UsageError(what, f'URL "{shown(safe, 120)}"', todo)

    if any(not character.isprintable() or character == " " for character in text):
        raise refuse("it holds a blank or a control character", "encode it, a blank as %20")
    if not _SCHEME.match(text):
        raise refuse("it has no scheme", "begin it with http://, https:// or grpc://")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as problem:
        raise refuse(str(problem), "write it as http://host:8000/path") from None
    if parts.scheme not in _PORTS:
        raise refuse(f'"{parts.scheme}" is not a scheme that gpusize speaks', "use http:// or https://")
    if "@" in parts.netloc:
        raise refuse(
            "it holds a user or a password", 'leave them out and give --header "Authorization: Basic env:VARIABLE"'
        )
    if parts.fragment or text.endswith("#"):
        raise refuse("it has a fragment, which is never sent", "leave out the # and what follows")
    if any(_SECRET.fullmatch(name) for name, _ in parse_qsl(parts.query, keep_blank_values=True)):
        text = text.split("?", 1)[0]
        raise refuse(
            "its query holds a secret, which would be stored with the run", 'give --header "Name: env:VARIABLE"'
        )
    if not parts.hostname:
        raise refuse("it has no host", "write it as http://host:8000/path")
    if port == 0:
        raise refuse("port 0 is not valid", "give a port from 1 to 65535")
    try:
        host = _host(parts.hostname, bracketed="[" in parts.netloc)
    except ValueError as problem:
        raise refuse(str(problem), "check the host name") from None
    path = quote(parts.path, safe=_SAFE) + (f"?{quote(parts.query, safe=_SAFE)}" if parts.query else "")
    return Address(parts.scheme in _TLS, host, _PORTS[parts.scheme] if port is None else port, path)


def address_of(text: str, where: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; an IPv6 address stands in brackets.

    Raises:
        UsageError: it is something else.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError("this is no address with a port", where, "write it as 10.0.0.5:7070 or [fd00::5]:7070")
    return host, int(port)


def _host(host: str, *, bracketed: bool) -> str:
    if bracketed:
        return str(ipaddress.IPv6Address(host))
    if re.fullmatch(r"[0-9.]+", host):
        return str(ipaddress.IPv4Address(host))
    try:
        name = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        raise ValueError(f'"{shown(host)}" is not a host name') from None
    labels = name.removesuffix(".").split(".")
    # IDNA turns digits of other scripts into ours: an address that is not written as one is refused.
    if re.fullmatch(r"[0-9.]+", name) or len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f'"{shown(host)}" is not a host name')
    return name
