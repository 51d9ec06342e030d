"""A copy of the package in which a test changes files as somebody would who adds something."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gpusize

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE = Path(gpusize.__file__).parent
ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"


class House:
    """The copy; its files are links to ours until they are changed.

    Attributes:
        changed: paths below the package that were added or changed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.changed: list[str] = []
        shutil.copytree(PACKAGE, folder / "gpusize", copy_function=os.symlink)

    def add(self, path: str, text: str) -> None:
        """A new file."""
        self._note(path)
        (self.folder / "gpusize" / path).write_text(text, "utf-8")

    def insert(self, path: str, before: str, text: str) -> None:
        """A text into a file, before another one that stands there once."""
        file = self.folder / "gpusize" / path
        old = file.read_text("utf-8")
        assert old.count(before) == 1, f"{path} has {old.count(before)} times: {before}"
        self._note(path)
        file.unlink()  # the link, not our file
        file.write_text(old.replace(before, text + before), "utf-8")

    def run(self, *args: str, exits: int = 0) -> str:
        """What ``gpusize ARGS`` prints in the folder of the copy, both outputs together."""
        env = {**os.environ, "PYTHONPATH": str(self.folder), "COLUMNS": "200", "NO_COLOR": "1"}
        command = [sys.executable, "-m", "gpusize", *args]
        found = subprocess.run(
            command, cwd=self.folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        assert found.returncode == exits, found.stdout
        return found.stdout

    def is_documented_as(self, addition: str) -> bool:
        """Whether what was changed is what the table in docs/architecture.md names for an addition, one to three."""
        [row] = [line for line in ARCHITECTURE.read_text("utf-8").splitlines() if line.startswith(f"| {addition} |")]
        named = set(re.findall(r"`([\w/.]+)`", row.split("|")[2]))
        found = {path if path in named else str(Path(path).parent) for path in self.changed}
        return found == named and 1 <= len(self.changed) <= 3

    def _note(self, path: str) -> None:
        if path not in self.changed:
            self.changed.append(path)


@pytest.fixture
def house(tmp_path: Path) -> House:
    """The package in an empty folder."""
    return House(tmp_path)


class Server(ThreadingHTTPServer):
    """Answers ``{"ask": text}`` with ``{"said": text}``, and keeps the texts."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Parrot)
        self.asked: list[str] = []


class Parrot(BaseHTTPRequestHandler):
    """One connection of it."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Answer a request."""
        assert isinstance(self.server, Server)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body["ask"])
        answer = json.dumps({"said": body["ask"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def parrot() -> Iterator[Server]:
    """A server with an API that nobody knows yet."""
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()
