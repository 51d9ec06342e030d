"""Standard output and standard error that may fail: a full disk, a closed terminal, a reader that has gone.

What was measured does not depend on who listens. A write that fails is noted once, what comes after it is dropped, and
the command goes on; ``gpusize run`` says so in ``run.json``.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

__all__ = ["Output", "lost_outputs", "outputs"]

_NAMES = {"stdout": "standard output", "stderr": "standard error"}


class Output:
    """A text stream that takes every write.

    Args:
        stream: where the text goes; None where there is nothing to write to.

    Attributes:
        lost: why text was lost; None while none was.
        left: whether that is because its reader has gone, as ``| head`` does.
    """

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream = stream
        self.lost: str | None = None
        self.left = False

    def write(self, text: str) -> int:
        """Write as far as that goes; always says that all was written."""
        if self._stream is None:
            self.lost = "it is closed"
        elif self.lost is None:
            self._try(lambda stream: stream.write(text))
        return len(text)

    def flush(self) -> None:
        """As ``write``."""
        if self._stream is not None and self.lost is None:
            self._try(lambda stream: stream.flush())

    def _try(self, act: Any) -> None:
        try:
            act(self._stream)
        except OSError as error:
            self.lost, self.left = error.strerror or str(error), isinstance(error, BrokenPipeError)
        except ValueError as error:
            if not getattr(self._stream, "closed", False):
                raise
            self.lost = str(error)

    def drop(self) -> None:
        """Send what Python still holds of it nowhere: at its end it would complain again, with a code of its own."""
        if self._stream is not None and self.lost is not None:
            with contextlib.suppress(OSError, ValueError):
                target = os.open(os.devnull, os.O_WRONLY)
                os.dup2(target, self._stream.fileno())
                os.close(target)

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._stream is not None and self._stream.isatty()

    @property
    def encoding(self) -> str:
        """Of its text."""
        return getattr(self._stream, "encoding", None) or "utf-8"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def outputs() -> Iterator[tuple[Output, Output]]:
    """Standard output and standard error as `Output` inside the block."""
    before = sys.stdout, sys.stderr
    made = Output(before[0]), Output(before[1])
    sys.stdout, sys.stderr = made
    try:
        yield made
        for each in made:
            each.flush()
    finally:
        sys.stdout, sys.stderr = before
        for each in made:
            each.drop()


def lost_outputs() -> dict[str, str]:
    """Which of the two lost text so far, and why; a reader that has gone had enough and counts as none."""
    found = {}
    for name, spoken in _NAMES.items():
        stream = getattr(sys, name)
        if isinstance(stream, Output):
            stream.flush()
            if stream.lost is not None and not stream.left:
                found[spoken] = stream.lost
    return found
