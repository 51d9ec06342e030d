"""The null server as a process of its own: ``python -m gpusize.doctor.null THREADS``.

It says on standard output where it listens, answers each line ``stats`` with what it has done, and ends with its input.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any, Final, Self

from gpusize.engine import core
from gpusize.errors import EnvironmentLacks
from gpusize.textio import shown

__all__ = ["NullServer", "serve"]

HOST: Final = "127.0.0.1"
STOP_S: Final = 5.0


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
        self._child: subprocess.Popen[str] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        # A session of its own: Ctrl-C on the terminal is for the doctor, which then ends it.
        self._child = subprocess.Popen(
            [sys.executable, "-m", "gpusize.doctor.null", str(self._threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        ready = self._read()
        if not ready:
            _, errors = self._child.communicate()
            said = shown(errors.strip() or "it said nothing", 500)
            raise EnvironmentLacks(f"the null server did not start: {said}", "doctor")
        self.url = str(ready["url"])
        return self

    def stats(self) -> dict[str, Any]:
        """``requests`` answered and ``cpu_s`` used so far; empty when it has ended."""
        child = self._child
        if child is None or child.stdin is None:
            return {}
        with contextlib.suppress(OSError, ValueError):
            child.stdin.write("stats\n")
            child.stdin.flush()
        return self._read()

    def __exit__(self, *_: object) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(OSError):
            if child.stdin is not None:
                child.stdin.close()
        try:
            child.wait(STOP_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()

    def _read(self) -> dict[str, Any]:
        child = self._child
        line = child.stdout.readline() if child is not None and child.stdout is not None else ""
        return dict(json.loads(line)) if line else {}


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
