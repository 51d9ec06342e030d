"""The null server as a process of its own: ``python -m gpusize.doctor.null THREADS``.

It says on standard output where it listens, answers each line ``stats`` with what it has done, and ends with its input.
"""

from __future__ import annotations

import json
import sys
import time
from typing import IO, Any, Final, Self

from gpusize.base.child_process import Child
from gpusize.base.errors import EnvironmentLacks
from gpusize.base.text import shown
from gpusize.engine.session import core

__all__ = ["NullServer", "serve"]

HOST: Final = "127.0.0.1"


class NullServer:
    """A child process that answers every HTTP/1.1 request at once, while the ``with`` block runs.

    Args:
        threads: threads that answer.

    Attributes:
        url: its address; empty before entry.

    Raises:
        EnvironmentLacks: on entry, when the child does not come up; with what it said.
    """

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._child: Child | None = None
        self.url = ""

    def __enter__(self) -> Self:
        child = Child(["gpusize.doctor.null", str(self._threads)])
        ready = child.read()
        if ready is None:
            said = shown(child.last_words(), 500)
            raise EnvironmentLacks(f"the null server did not start: {said}", "doctor")
        self._child = child
        self.url = str(ready["url"])
        return self

    def stats(self) -> dict[str, Any]:
        """``requests`` answered and ``cpu_s`` used so far; empty when it has ended."""
        if self._child is None:
            return {}
        self._child.tell("stats")
        return self._child.read() or {}

    def __exit__(self, *_: object) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()
            child.close()


def serve(threads: int, questions: IO[str], out: IO[str]) -> None:
    """Serve until ``questions`` ends."""
    server = core().NullServer(HOST, 0, threads=threads)

    def say(content: dict[str, Any]) -> None:
        out.write(f"{json.dumps(content)}\n")
        out.flush()

    try:
        say({"url": f"http://{HOST}:{server.port}"})
        for line in questions:
            if line.strip() == "stats":
                say({"requests": server.requests, "cpu_s": time.process_time()})
    finally:
        server.stop()


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.stdin, sys.stdout)
