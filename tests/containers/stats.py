"""What ``docker stats`` says of containers, beside what is measured here."""

from __future__ import annotations

import contextlib
import threading

import docker

from gpusize.containers.pipeline import Events
from gpusize.containers.pipeline.daemon import Daemon

__all__ = ["DockerStats"]


class DockerStats(Events):
    """Follows the stream behind ``docker stats`` for each container that begins.

    Attributes:
        most: the most memory that it told of each, in bytes, in the order in which they began.
    """

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._threads: list[threading.Thread] = []
        self.most: list[int] = []

    def began(self, container_id: str) -> None:
        """Follow another one."""
        place = len(self.most)
        self.most.append(0)

        def follow() -> None:
            # It may be gone before it is asked for.
            with contextlib.suppress(docker.errors.NotFound):
                for told in self._daemon.client.stats(container_id, decode=True, stream=True):
                    held = int(told.get("memory_stats", {}).get("usage", 0))
                    self.most[place] = max(self.most[place], held)

        self._threads.append(threading.Thread(target=follow, daemon=True))
        self._threads[-1].start()

    def wait(self) -> None:
        """Until the streams have ended, as they do with their containers."""
        for thread in self._threads:
            thread.join(10)
