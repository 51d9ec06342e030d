"""A server as a child process: it says when it is ready, it is ended by its pid, and it does not outlive the tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

__all__ = ["ENDS_WITH_US", "Child", "ChildFailed"]

# A test run that is killed must not leave servers behind.
_SETPRIV = shutil.which("setpriv")
ENDS_WITH_US = [_SETPRIV, "--pdeathsig", "TERM", "--"] if _SETPRIV else []

END_S = 30.0


class ChildFailed(Exception):
    """The server ended instead of getting ready; the text is the end of its log."""


class Child:
    """A running server; a context manager.

    The command gets ``--ready-fd N`` appended and writes one line of JSON there when it serves; all else that it and
    its children print goes to the log.

    Args:
        command: the program and its arguments.
        log: file for its output.
        environment: variables beside ours.
    """

    def __init__(self, command: Sequence[str | Path], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        ours, theirs = os.pipe()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*ENDS_WITH_US, *map(str, command), "--ready-fd", str(theirs)],
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs],
            )
        os.close(theirs)
        with open(ours, encoding="utf-8") as ready:
            line = ready.readline()
        if not line:
            self.close()
            raise ChildFailed(f"{Path(command[1]).name} ended with {self._process.returncode}:\n{self.tail()}")
        self.ready: dict[str, Any] = json.loads(line)

    @property
    def pid(self) -> int:
        """The process to end."""
        return self._process.pid

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
