"""What runs on a node of a Ray cluster for a study: an actor that has combinations measured by a program of its own.

Ray carries this class whole, not by its name, and `about` with it: see there. Ray kills actors and what they have
started, with no time to tear down. So the program is nobody's child, and ends in order when the actor is gone.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpusize.base.on_ray.about import about

__all__ = ["GpusizeStudy"]


class GpusizeStudy:
    """Measures combinations, one after the other. Its name is what ``ray list actors`` and ``ps`` show."""

    def __init__(self) -> None:
        self._program: subprocess.Popen[bytes] | None = None
        self._archive = ""

    def about(self) -> dict[str, Any]:
        """What this node has of ours."""
        return about("gpusize.studies.one_combination")

    def measure(self, task: bytes) -> dict[str, Any]:
        """Have one combination measured, and say what came of it; what is kept of it is for `read`.

        Args:
            task: what `gpusize.studies.one_combination` takes.
        """
        import gpusize

        # It finds what this process has found, whichever way that was.
        ours = str(Path(gpusize.__file__).parent.parent)
        paths = [ours, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._program = program = subprocess.Popen(
            [sys.executable, "-m", "gpusize.studies.one_combination"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        if not self._say(struct.pack("!Q", len(task)) + task):
            return {"died": "its process did not start"}
        # It leaves us at once, so that its end is that of what it says.
        program.wait()
        said = b"" if program.stdout is None else program.stdout.readline()
        if not said:
            return {"died": "its process ended; nothing may have been torn down"}
        found: dict[str, Any] = json.loads(said)
        self._archive = str(found.get("archive", ""))
        return found

    def stop(self) -> None:
        """As Ctrl-C."""
        self._say(b"stop\n")

    def read(self, at: int, count: int) -> bytes:
        """So many bytes of what was kept."""
        with Path(self._archive).open("rb") as source:
            source.seek(at)
            return source.read(count)

    def dismiss(self) -> None:
        """It is at home: nothing is kept here any more."""
        self._say(b"bye\n")
        if self._program is not None:
            self._program.communicate()

    def _say(self, word: bytes) -> bool:
        if self._program is None or self._program.stdin is None:
            return False
        try:
            self._program.stdin.write(word)
            self._program.stdin.flush()
        except (OSError, ValueError):
            # It has ended, which `measure` hears of.
            return False
        return True
