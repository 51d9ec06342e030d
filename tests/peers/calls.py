"""Programs that use the clients of the field, run by the interpreter that has these: a line of JSON in, one out."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any, Self

__all__ = ["Programs"]

PROGRAMS = Path(__file__).with_name("programs")


class Programs:
    """Runs programs of the folder ``programs``, each once for all its questions: most of its time it imports."""

    def __init__(self, python: Path) -> None:
        self._python = python
        self._running: dict[str, tuple[subprocess.Popen[str], IO[str]]] = {}

    def __call__(self, name: str, wanted: Any) -> Any:
        """What it answers to ``wanted``."""
        child, complaints = self._running.get(name) or self._start(name)
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(f"{json.dumps(wanted)}\n")
            child.stdin.flush()
            answer = child.stdout.readline()
            assert answer, _said(complaints)
            return json.loads(answer)
        except BaseException:
            # A test's time is over, or the program's: its answer must not become that to the next question.
            child.kill()
            self._end(*self._running.pop(name))
            raise

    def _start(self, name: str) -> tuple[subprocess.Popen[str], IO[str]]:
        complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- it is closed with the program
        words = [self._python, PROGRAMS / name]
        child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, text=True)
        self._running[name] = (child, complaints)
        return child, complaints

    @staticmethod
    def _end(child: subprocess.Popen[str], complaints: IO[str]) -> tuple[int, str]:
        """How it ended, and its complaints."""
        with child, complaints:
            if child.stdin is not None:
                child.stdin.close()
            return child.wait(), _said(complaints)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for status, complaints in [self._end(*each) for each in self._running.values()]:
            assert status == 0, complaints


def _said(complaints: IO[str]) -> str:
    complaints.seek(0)
    return complaints.read()
