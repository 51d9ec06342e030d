"""Draw what a command prints in the terminal as an SVG, for the README and the documentation.

`python -m scripts.picture docs/images/run.svg --leave-out GPUs "In the server" -- gpusize run` runs the command in
colour and keeps its standard output. `--leave-out` drops the tables with these titles, so that the picture stays short.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text


def captured(command: Sequence[str], width: int) -> list[Text]:
    """The command's standard output by line, with its colours."""
    program = shutil.which(command[0], path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        sys.exit(f"picture: no {command[0]} on PATH")
    surroundings = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(width)}
    done = subprocess.run([program, *command[1:]], check=False, env=surroundings, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"picture: {command[0]} ended with {done.returncode}")
    return [Text.from_ansi(line) for line in done.stdout.splitlines()]


def without(lines: Iterable[Text], titles: Sequence[str]) -> list[Text]:
    """The lines without the tables of these titles; a table ends at an empty line."""
    kept, inside = [], False
    for line in lines:
        inside = line.plain.strip() in titles or (inside and bool(line.plain.strip()))
        kept += [] if inside else [line]
    return [line for at, line in enumerate(kept) if line.plain.strip() or (at and kept[at - 1].plain.strip())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("picture", type=Path, help="the SVG to write")
    parser.add_argument("--width", type=int, default=130, help="columns of the terminal")
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="TITLE", help="tables to leave out")
    parser.add_argument("command", nargs="+", help="after --")
    asked = parser.parse_args()
    console = Console(record=True, width=asked.width, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {' '.join(asked.command)}", style="bold"))
    for line in without(captured(asked.command, asked.width), asked.leave_out):
        console.print(line, soft_wrap=True)
    console.save_svg(str(asked.picture), title=asked.command[0])


if __name__ == "__main__":
    main()
