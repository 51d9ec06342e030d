"""A server as a child process: it says when it is ready, it is ended by its pid, and it does not outlive the tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

__all__ = ["ENDS_WITH_US", "Child", "ChildFailed", "Running", "free_ports"]

# A test run that is killed must not leave servers behind.
_SETPRIV = shutil.which("setpriv")
ENDS_WITH_US = [_SETPRIV, "--pdeathsig", "TERM", "--"] if _SETPRIV else []

END_S = 30.0


class ChildFailed(Exception):
    """The server ended instead of getting ready; the text is the end of its log."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, all different."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


class Running:
    """A process with its log; a context manager that ends it.

    Args:
        command: the program and its arguments.
        log: file for all that it and its children print.
        environment: variables beside ours.
        pass_fds: that it inherits.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        environment: Mapping[str, str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*ENDS_WITH_US, *map(str, command)],
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=pass_fds,
            )

    @property
    def pid(self) -> int:
        """The process to end."""
        return self._process.pid

    @property
    def ended(self) -> int | None:
        """How it ended; None while it runs."""
        return self._process.poll()

    def tail(self, lines: int = 30) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def close(self) -> None:
        """End it and wait for its end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(timeout=END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Child(Running):
    """A running server that says when it serves.

    The command gets ``--ready-fd N`` appended and writes one line of JSON there then.

    Args:
        command: the program and its arguments.
        log: file for its output.
        environment: variables beside ours.
    """

    def __init__(self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> None:
        ours, theirs = os.pipe()
        super().__init__([*command, "--ready-fd", str(theirs)], log, environment, (theirs,))
        os.close(theirs)
        with open(ours, encoding="utf-8") as ready:
            line = ready.readline()
        if not line:
            self.close()
            raise ChildFailed(f"{Path(command[1]).name} ended with {self._process.returncode}:\n{self.tail()}")
        self.ready: dict[str, Any] = json.loads(line)
