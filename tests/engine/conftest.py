"""The servers that the engine is tried against."""

from __future__ import annotations

from tests.servers.fixtures import certificates, nginx_server, nginx_tls_server, scripted_server

__all__ = ["certificates", "nginx_server", "nginx_tls_server", "scripted_server"]
