"""The life of a container, in a thread of its own: made, started and waited for, however long the daemon takes."""

from __future__ import annotations

import contextlib
import threading

from gpusize.base.errors import EnvironmentLacks
from gpusize.containers.pipeline.container import Container
from gpusize.containers.pipeline.daemon import Daemon, daemon_words
from gpusize.containers.pipeline.wait import Call

__all__ = ["Life"]


class Life:
    """A container from the call that makes it to its end.

    Args:
        daemon: the daemon.
        container: what to make.

    Attributes:
        made: set when it has been made, or will not be. It then waits for `start`.
        started: set when it has been started, or will not be.
        id: as the daemon names it; None before it is made, and where it is not.
        refused: why the daemon has not made or not started it.
        call: its end. Raises what the SDK raises where the daemon goes away.
    """

    def __init__(self, daemon: Daemon, container: Container) -> None:
        self._daemon = daemon
        self._container = container
        self._decided = threading.Event()
        self._wanted = False
        self.made, self.started = threading.Event(), threading.Event()
        self.id: str | None = None
        self.refused: str | None = None
        self.call = Call(self._live)

    def _live(self) -> None:
        import docker

        client = self._daemon.patient
        try:
            self.id = str(client.create_container_from_config(self._container.config())["Id"])
            self.made.set()
            self._decided.wait()
            if not self._wanted:
                with contextlib.suppress(EnvironmentLacks):
                    self._daemon.remove_container(self.id)
                return
            client.start(self.id)
        except docker.errors.APIError as problem:
            words = daemon_words(problem)
            self.refused = words if self.id is not None else f"the container cannot be made: {words}"
            return
        finally:
            self.made.set()
            self.started.set()
        # Containers are not removed at their end, so one that has ended already answers at once.
        client.wait(self.id, timeout=None)

    def start(self) -> None:
        """Start it, once it has been made."""
        self._wanted = True
        self._decided.set()

    def give_up(self, patience_s: float) -> None:
        """Do without it, unless it was to be started: if it is made after all, it is removed.

        Args:
            patience_s: longest time to wait for that.
        """
        self._decided.set()
        if not self._wanted:
            self.call.ended.wait(patience_s)
