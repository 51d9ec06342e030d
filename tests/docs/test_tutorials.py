"""The tutorials are followed as they stand: files written, commands run in order, output compared in its fixed parts.

Durations are shorter and the port is a free one; what a busy machine may change (counts, whether there is a number) is
not compared.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import gpusize

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "tutorial").glob("*.md"))
FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
LABELS = ("capacity", "interval", "method", "changes it", "measure next", "true answer")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is, its text."""

    language: str
    file: str
    text: str


@dataclass(frozen=True)
class Followed:
    """What following a page came to: the exit status of its last command, and what all of them printed."""

    code: int
    out: str
    err: str


def blocks(page: Path) -> list[Block]:
    return [Block(*each) for each in FENCE.findall(page.read_text("utf-8"))]


def shortened(text: str) -> str:
    """The same commands with levels of a second, and a server on a port that the kernel gives."""
    text = re.sub(r"--duration \d+s", "--duration 1s", text.replace(":8000", ":$port"))
    text = re.sub(r"^gpusize run --out first$", "gpusize run --duration 1s --out first", text, flags=re.MULTILINE)
    return re.sub(r"^gpusize simulate (.*) --port 8000 &$", SERVE, text, flags=re.MULTILINE)


SERVE = r"""
exec gpusize simulate \1 --port 0 >served &
until [ -s served ]; do sleep 0.05; done
port=$(grep -o '127.0.0.1:[0-9]*' served | head -n 1 | cut -d: -f2)
[ ! -e agent.py ] || sed -i "s/:8000/:$port/" agent.py
"""
"""What a person does: start it, wait until it has said where it is, and write that address into the code."""


@pytest.fixture(params=PAGES, ids=lambda page: page.stem)
def page(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def followed(page: Path, tmp_path: Path) -> Followed:
    """The page's commands, run by bash in an empty folder with the page's files in it."""
    for block in blocks(page):
        if block.file:
            (tmp_path / block.file).write_text(block.text, "utf-8")
    # 1 is a measured no: there is no number, as the machine was busy or as the page wants to show.
    lines = ['gpusize() { command gpusize "$@" || [ $? = 1 ]; }', "set -eu"]
    lines += [shortened(block.text) for block in blocks(page) if block.language == "sh"]
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(Path(gpusize.__file__).parents[1]), "COLUMNS": "200"}
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            ["bash", "-c", "\n".join(lines)],
            cwd=tmp_path,
            env=environment,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        try:
            code = process.wait()
        finally:
            # The page ends its server itself, unless one of its commands failed.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Followed(code, (tmp_path / "out").read_text("utf-8"), (tmp_path / "err").read_text("utf-8"))


def test_a_tutorial_can_be_followed(page: Path, followed: Followed) -> None:
    assert followed.code == 0, followed.err[-2000:]
    assert "Traceback" not in followed.err
    printed = [" ".join(line.split()) for line in followed.out.replace("│", " ").splitlines()]
    shown = "\n".join(block.text for block in blocks(page) if block.language == "text").splitlines()
    for line in shown:
        if line.startswith(("level ", "users ", "prompts.jsonl")):
            # A slow machine's times are in seconds.
            words = set(line.split()) - {"ms", "s"}
            assert any(words <= set(each.split()) for each in printed), line
    labels = [label for label in LABELS if any(line.startswith(label) for line in shown)]
    missing = [label for label in labels if not any(line.startswith(f"{label} ") for line in printed)]
    # No level counts on a machine that was too busy to send it; then there is nothing that a number could rest on.
    assert not missing or "generator-limited" in followed.out, missing


def test_there_are_three() -> None:
    assert [page.stem for page in PAGES] == ["agent", "first-answer", "first-server"]
    assert all(any(block.language == "sh" for block in blocks(page)) for page in PAGES)
