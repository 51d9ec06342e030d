"""What stands between a test and the daemon: it passes everything on, may be slow, and may be cut."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Wire"]


class Wire:
    """A socket that passes everything on to the daemon until it is cut.

    Args:
        address: the daemon's.
        folder: of the test, whose name makes the socket's.
        delay_s: how long a request that has some words in it waits, by the words.
    """

    def __init__(self, address: str, folder: Path, delay_s: Mapping[bytes, float] | None = None) -> None:
        self._delay_s = delay_s or {}
        self.held, self._over = threading.Event(), threading.Event()
        self._to = address.removeprefix("unix://")
        self._place = Path("/tmp") / f"gpusize-wire-{os.getpid()}-{folder.name[-6:]}.sock"
        self.address = f"unix://{self._place}"
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(self._place))
        self._listening.listen(32)
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listening.accept()
            except OSError:
                return
            theirs = socket.socket(socket.AF_UNIX)
            theirs.connect(self._to)
            self._ends += [ours, theirs]
            for source, sink in ((ours, theirs), (theirs, ours)):
                thread = threading.Thread(target=self._pass_on, args=(source, sink), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                for words, delay_s in self._delay_s.items():
                    if words in data:
                        self.held.set()
                        if self._over.wait(delay_s):
                            return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def cut(self) -> None:
        """End all connections; what waits is not passed on any more."""
        self._over.set()
        self._place.unlink(missing_ok=True)
        for end in (self._listening, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(5)
