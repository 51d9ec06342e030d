"""Programs that use the clients of the field, run by the interpreter that has these: JSON in, JSON out."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Program"]

PROGRAMS = Path(__file__).with_name("programs")


@dataclass(frozen=True)
class Program:
    """Runs a program of the folder ``programs``."""

    python: Path

    def __call__(self, name: str, wanted: Any) -> Any:
        """What it answers to ``wanted``; it must end well."""
        command = [self.python, PROGRAMS / name]
        done = subprocess.run(command, input=json.dumps(wanted), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
