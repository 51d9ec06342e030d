"""The fixtures that this folder itself is about."""

from tests.servers.fixtures import certificates, nginx_server, nginx_tls_server, scripted_server

__all__ = ["certificates", "nginx_server", "nginx_tls_server", "scripted_server"]
