"""A server that says what a test wants."""

from tests.servers.fixtures import scripted_server

__all__ = ["scripted_server"]
