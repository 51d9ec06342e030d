"""``gpusize sample`` on a terminal: the line that is kept up to date, and whose Ctrl-C it is."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import gpusize as package
from gpusize.report.containers.sample import live_line, showing
from tests.resources.made import MIB, readings, workload

SOURCE = {**os.environ, "PYTHONPATH": str(Path(package.__file__).parents[1]), "TERM": "xterm", "COLUMNS": "120"}

# Says how often it was interrupted: half a second after the first time, so that a second one would be seen.
COUNT = """
import signal, time
count = 0
def on(number, frame):
    global count
    count += 1
signal.signal(signal.SIGINT, on)
print("up", flush=True)
while not count:
    time.sleep(0.01)
time.sleep(0.5)
print(f"interrupted {count} times", flush=True)
"""


def test_the_line_says_how_it_stands():
    made = workload(lambda t: 2.0 if t > 3 else 0.5, 5.0, memory=lambda t: (90 if t < 1 else 60) * MIB)
    assert live_line(made) == "made: 5 s, 2 cores, 62.9 MB (60 MiB), at most 94.4 MB (90 MiB)"
    assert live_line(readings({"t_ns": []})) == "made: no reading yet"
    assert live_line(readings({"t_ns": [5], "cpu_ns": [5]})) == "made: 0 s"
    with showing(wanted=False) as show:
        assert show is None


class Terminal:
    """A process with a terminal of its own, of which it is in the foreground."""

    def __init__(self, words: list[str], folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        # setsid --ctty makes the terminal on standard input the one that Ctrl-C comes from.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *words], cwd=folder, env=SOURCE, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self.seen = ""

    def until(self, text: str | None) -> str:
        """Read until this was said, or until the end."""
        while text is None or text not in self.seen:
            try:
                piece = os.read(self._ours, 65536)
            except OSError:  # how Linux says that nobody is on the other side any more
                break
            self.seen += piece.decode("utf-8", "replace")
        assert text is None or text in self.seen
        return self.seen

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        os.close(self._ours)


Open = Callable[..., Terminal]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Open]:
    """Starts ``gpusize sample`` on a terminal."""
    if shutil.which("setsid") is None:
        pytest.skip("needs setsid (util-linux) for a terminal of its own")
    opened: list[Terminal] = []

    def start(*argv: str) -> Terminal:
        opened.append(Terminal([sys.executable, "-m", "gpusize", "sample", "--no-plots", *argv], tmp_path))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_ctrl_c_reaches_the_command_once(terminal: Open, tmp_path: Path):
    window = terminal("--", sys.executable, "-c", COUNT)
    window.until("up")
    window.press(b"\x03")
    seen = window.until(None)
    assert "interrupted 1 times" in seen
    # What it made of it is its own affair: it ended well.
    assert window.process.wait() == 0
    assert "Request " in seen
    assert len(list((tmp_path / "samples").iterdir())) == 1


def test_what_runs_has_a_line_that_is_gone_at_the_end(terminal: Open):
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        window = terminal("--pid", str(sleeper.pid), "--interval", "5ms")
        window.until("cores")
        window.press(b"\x03")
        seen = window.until(None)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert window.process.wait() == 0
    assert "sleep: " in seen
    # The last thing that the line left is an erased one.
    assert "\x1b[2K" in seen
    assert "it ran before the first reading" in seen
