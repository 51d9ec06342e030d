"""One part of the control plane: a process that says over HTTP when it is ready."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

import httpx

from tests.servers.child import END_S, ENDS_WITH_US

__all__ = ["Part", "PartFailed"]

_READY_S = 120.0
_PAUSE_S = 0.05


class PartFailed(Exception):
    """It ended, or does not get ready; the text is the end of its log."""


class Part:
    """A process that can be started again, with the same command.

    Args:
        command: the program and its arguments.
        log: file for its output.
        ready: address that answers 200 once it serves.
        tls: with the authority of that address.
        token: to send there.
    """

    def __init__(
        self, command: Sequence[str | Path], log: Path, ready: str, tls: ssl.SSLContext, token: str = ""
    ) -> None:
        self._command = [*ENDS_WITH_US, *map(str, command)]
        self._log = log
        self._ready = ready
        self._tls = tls
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process; it has to run."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, without waiting."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
            )

    def wait(self) -> None:
        """Until it is ready; raises PartFailed when it ends instead."""
        assert self._process is not None
        pause = threading.Event()
        with httpx.Client(verify=self._tls, headers=self._headers, trust_env=False) as client:
            for _ in range(round(_READY_S / _PAUSE_S)):
                if self._process.poll() is not None:
                    raise PartFailed(f"{self._log.stem} ended with {self._process.returncode}:\n{self.tail()}")
                with contextlib.suppress(httpx.TransportError):
                    if client.get(self._ready).status_code == httpx.codes.OK:
                        return
                pause.wait(_PAUSE_S)
        raise PartFailed(f"{self._log.stem} does not get ready:\n{self.tail()}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it by its process id, and wait for its end."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def tail(self, lines: int = 30) -> str:
        """The end of its log."""
        return "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])
