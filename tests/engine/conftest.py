"""The servers that the engine is tried against."""

from __future__ import annotations

from tests.servers.fixtures import (
    certificates,
    nginx_http2_server,
    nginx_http2_tls_server,
    nginx_server,
    nginx_tls_server,
    scripted_server,
)

__all__ = [
    "certificates",
    "nginx_http2_server",
    "nginx_http2_tls_server",
    "nginx_server",
    "nginx_tls_server",
    "scripted_server",
]
