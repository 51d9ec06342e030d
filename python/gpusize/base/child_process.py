"""Servers of ours in processes of their own, so that their CPU time is not the generator's.

Such a child says on its standard output when it is up, one JSON document a line, may take questions on its standard
input, and ends when that closes: also when this process is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Child"]

STOP_S: Final = 5.0


class Child:
    """``python -m MODULE ARGUMENTS``, running.

    Args:
        arguments: the module and its arguments.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        # The child finds the package where this process found it, whatever put it on the path.
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        # A session of its own: Ctrl-C on the terminal is for this process, which then puts things in order.
        self._process = subprocess.Popen(
            [sys.executable, "-m", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )

    def read(self) -> dict[str, Any] | None:
        """The next thing that it says; None when it has ended."""
        out = self._process.stdout
        line = "" if out is None else out.readline()
        return dict(json.loads(line)) if line else None

    def lines(self) -> Iterator[str]:
        """What it says until it ends, line by line."""
        return iter(self._process.stdout or ())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def tell(self, text: str) -> bool:
        """Say a line of text to it; False when it has ended."""
        if self._process.stdin is None:
            return False
        try:
            self._process.stdin.write(f"{text}\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            return False
        return True

    def last_words(self) -> str:
        """What an ended child said on its standard error; waits for its end."""
        _, errors = self._process.communicate()
        return errors.strip() or "it printed nothing"

    def end(self, within_s: float = STOP_S) -> None:
        """Let it end, and make sure that it does; it has so long to put things in order."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        self._process.stdin = None  # `communicate` would flush it
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def close(self) -> None:
        """Let go of what it said; after `end`, and after whoever reads `lines` has finished."""
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
